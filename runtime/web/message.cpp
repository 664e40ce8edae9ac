#include "runtime/web/message.hpp"

#include <boost/json.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <system_error>

namespace parcae {

namespace {

constexpr std::size_t max_names = 8; // of a path
constexpr std::size_t max_values = 64;

std::string percent_decoded(std::string_view x, bool plus_is_space) {
  std::string result;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (x[i] == '+' && plus_is_space) {
      result += ' ';
    } else if (x[i] != '%') {
      result += x[i];
    } else {
      unsigned code = 0;
      const auto* begin = x.data() + i + 1;
      if (i + 2 >= x.size() || std::from_chars(begin, begin + 2, code, 16).ptr != begin + 2)
        throw web_error(400, "the target is not encoded as it must be: % needs two hexadecimal digits");
      result += static_cast<char>(code);
      i += 2;
    }
  }
  if (std::ranges::any_of(result, [](unsigned char c) { return c < 0x20 || c == 0x7f; }))
    throw web_error(400, "the target has control characters");
  return result;
}

template <class Function>
void for_each_part(std::string_view x, char separator, Function f) {
  for (;;) {
    const auto end = x.find(separator);
    f(x.substr(0, end));
    if (end == x.npos)
      return;
    x.remove_prefix(end + 1);
  }
}

} // namespace

std::string_view web_target::value(const std::string& name) const {
  const auto i = query.find(name);
  return i == query.end() ? std::string_view() : i->second;
}

web_target parse_web_target(std::string_view text) {
  web_target result;
  const auto question = text.find('?');
  auto path = text.substr(0, question);
  if (!path.starts_with('/'))
    throw web_error(400, "the target must be a path, such as /api/v1/status");
  path.remove_prefix(1);
  if (path.ends_with('/'))
    path.remove_suffix(1);
  if (!path.empty())
    for_each_part(path, '/', [&](std::string_view part) {
      auto name = percent_decoded(part, false);
      if (name.empty() || name == "." || name == ".." || name.find('/') != name.npos)
        throw web_error(400, "the path leads out of what is here");
      if (result.path.size() == max_names)
        throw web_error(404, "there is nothing so deep");
      result.path.push_back(std::move(name));
    });
  if (question != text.npos)
    for_each_part(text.substr(question + 1), '&', [&](std::string_view part) {
      if (part.empty())
        return;
      if (result.query.size() == max_values)
        throw web_error(400, "too many parameters");
      const auto equals = part.find('=');
      result.query.emplace(percent_decoded(part.substr(0, equals), true),
                           equals == part.npos ? "" : percent_decoded(part.substr(equals + 1), true));
    });
  return result;
}

std::uint64_t parse_number(std::string_view text, const std::string& what, std::uint64_t most) {
  std::uint64_t result = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), result);
  if (problem != std::errc{} || end != text.data() + text.size() || result > most)
    throw web_error(400, what + " must be a whole number, at most " + std::to_string(most));
  return result;
}

web_file::web_file(const std::filesystem::path& path) : descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (descriptor_ < 0)
    throw std::system_error(errno, std::generic_category(), "cannot read " + path.string());
  std::error_code stays;
  std::filesystem::remove(path, stays);
}

web_file::~web_file() {
  ::close(descriptor_);
}

web_answer answer_of(std::string json, unsigned status) {
  web_answer result;
  result.status = status;
  result.body = std::make_shared<const std::string>(std::move(json));
  return result;
}

web_answer answer_of(const web_error& x) {
  auto result = answer_of(boost::json::serialize(boost::json::object{{"error", x.what()}}), x.status);
  if (x.status == 401)
    result.headers.emplace_back("WWW-Authenticate", "Bearer");
  if (x.status == 405)
    result.headers.emplace_back("Allow", "GET, HEAD, POST");
  if (x.status == 429 || x.status == 503)
    result.headers.emplace_back("Retry-After", "1");
  return result;
}

} // namespace parcae
