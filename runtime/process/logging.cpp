#include "runtime/process/logging.hpp"

#include "protocols/base/printable.hpp"
#include "protocols/values/log_context.hpp"
#include "runtime/process/patient_stderr.hpp"

#include <boost/json.hpp>

#include <spdlog/pattern_formatter.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <utility>

namespace parcae {

namespace {

constexpr std::size_t max_text_bytes = 8192; ///< of one line; what is longer is cut

struct place_in_job {
  std::uint64_t job = 0, generation = 0, steps = 0;
};

/// When the message was logged: the same for all who format it, one after the other on its thread, while steps go on.
const place_in_job& place_of(const spdlog::details::log_msg& x) {
  thread_local spdlog::log_clock::time_point of;
  thread_local place_in_job place;
  if (std::exchange(of, x.time) != x.time) {
    const auto& now = current_log_context();
    place = {now.job.load(), now.generation.load(), now.steps.load()};
  }
  return place;
}

/// " [job 1, generation 3, step 40]", or nothing.
class context_flag : public spdlog::custom_flag_formatter {
public:
  void format(const spdlog::details::log_msg& x, const std::tm&, spdlog::memory_buf_t& to) override {
    if (const auto& place = place_of(x); place.job != 0)
      fmt::format_to(std::back_inserter(to), " [job {}, generation {}, step {}]", place.job, place.generation,
                     place.steps);
  }

  std::unique_ptr<custom_flag_formatter> clone() const override { return std::make_unique<context_flag>(); }
};

/// The text, as it can be shown to people whatever is in it.
class clean_text : public spdlog::custom_flag_formatter {
public:
  void format(const spdlog::details::log_msg& x, const std::tm&, spdlog::memory_buf_t& to) override {
    const auto text = printable({x.payload.data(), x.payload.size()}, max_text_bytes);
    to.append(text.data(), text.data() + text.size());
  }

  std::unique_ptr<custom_flag_formatter> clone() const override { return std::make_unique<clean_text>(); }
};

class json_formatter : public spdlog::formatter {
public:
  void format(const spdlog::details::log_msg& x, spdlog::memory_buf_t& to) override {
    const auto since = std::chrono::duration_cast<std::chrono::milliseconds>(x.time.time_since_epoch()).count();
    const std::time_t seconds = since / 1000;
    std::tm utc{};
    gmtime_r(&seconds, &utc);
    char at[40];
    const auto length = std::strftime(at, sizeof at, "%Y-%m-%dT%H:%M:%S", &utc);
    const auto view = [](const auto& text) { return std::string_view(text.data(), text.size()); };
    boost::json::object line{{"at", fmt::format("{}.{:03}Z", std::string_view(at, length), since % 1000)},
                             {"level", view(spdlog::level::to_string_view(x.level))},
                             {"who", printable(view(x.logger_name))}};
    if (const auto& place = place_of(x); place.job != 0) {
      line["job"] = place.job;
      line["generation"] = place.generation;
      line["step"] = place.steps;
    }
    line["text"] = printable(view(x.payload), max_text_bytes);
    const auto text = boost::json::serialize(line) + "\n";
    to.append(text.data(), text.data() + text.size());
  }

  std::unique_ptr<formatter> clone() const override { return std::make_unique<json_formatter>(); }
};

std::unique_ptr<spdlog::formatter> formatter_of(log_format x) {
  if (x == log_format::json)
    return std::make_unique<json_formatter>();
  auto text = std::make_unique<spdlog::pattern_formatter>();
  text->add_flag<context_flag>('@').add_flag<clean_text>('*').set_pattern("%H:%M:%S.%e %^%l%$ %n%@: %*");
  return text;
}

} // namespace

log_format parse_log_format(const std::string& x) {
  if (x == "text")
    return log_format::text;
  if (x == "json")
    return log_format::json;
  throw std::invalid_argument("--log-format " + x + " is unknown; it is text or json");
}

void log_to_stderr(const std::string& who, log_format format, std::shared_ptr<spdlog::sinks::sink> also) {
  auto logger = std::make_shared<spdlog::logger>(who, std::make_shared<patient_stderr>());
  logger->set_formatter(formatter_of(format));
  if (also) {
    also->set_formatter(formatter_of(log_format::text));
    logger->sinks().push_back(std::move(also));
  }
  spdlog::set_default_logger(std::move(logger));
}

} // namespace parcae
