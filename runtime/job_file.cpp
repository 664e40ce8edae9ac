#include "runtime/job_file.hpp"

#include "gpu/model_description.hpp"
#include "protocols/input_file.hpp"
#include "runtime/duration.hpp"

// The library's assertions fail on some malformed input ("[[[") that it goes on to report as an error.
#define TOML_ASSERT(condition) static_cast<void>(0)
#include <toml++/toml.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <system_error>
#include <type_traits>
#include <variant>
#include <vector>

namespace parcae {

namespace {

using namespace std::string_literals;

/// What a job file says, before defaults that depend on other keys are filled in.
struct draft {
  job_specification job;
  std::uint64_t samples = 0; ///< alternative to job.steps
  std::string keeper_feed = "snapshot";
  std::chrono::milliseconds planning_interval{0};
};

/// Where a value goes; its type says what is accepted.
using field = std::variant<std::string*, bool*, double*, std::uint32_t*, std::uint64_t*, std::chrono::milliseconds*>;

struct known_key {
  std::string_view section;
  std::string_view name;
  field (*target)(draft&);
  std::string_view kinds = {}; ///< values of the section's key `kind` that it is for; empty: all
};

// All keys of a job file, in the order of the documentation.
constexpr known_key known_keys[] = {
    {"job", "name", [](draft& x) -> field { return &x.job.name; }},
    {"job", "steps", [](draft& x) -> field { return &x.job.steps; }},
    {"job", "samples", [](draft& x) -> field { return &x.samples; }},
    {"job", "seed", [](draft& x) -> field { return &x.job.seed; }},
    {"job", "threads", [](draft& x) -> field { return &x.job.threads; }},
    {"job", "reproducible", [](draft& x) -> field { return &x.job.reproducible; }},
    {"job", "checkpoint_every", [](draft& x) -> field { return &x.job.checkpoint_every; }},
    {"job", "checkpoints_kept", [](draft& x) -> field { return &x.job.checkpoints_kept; }},
    {"job", "evaluate_every", [](draft& x) -> field { return &x.job.evaluate_every; }},
    {"model", "kind", [](draft& x) -> field { return &x.job.model.kind; }},
    {"model", "layers", [](draft& x) -> field { return &x.job.model.layers; }},
    {"model", "width", [](draft& x) -> field { return &x.job.model.width; }},
    {"model", "heads", [](draft& x) -> field { return &x.job.model.heads; }, "gpt, bert"},
    {"model", "sequence", [](draft& x) -> field { return &x.job.model.sequence; }, "gpt, bert, mlp"},
    {"model", "vocabulary", [](draft& x) -> field { return &x.job.model.vocabulary; }, "gpt, bert, mlp"},
    {"model", "dropout", [](draft& x) -> field { return &x.job.model.dropout; }, "gpt, bert, mlp, vgg"},
    {"model", "tied_embeddings", [](draft& x) -> field { return &x.job.model.tied_embeddings; }, "gpt, bert"},
    {"model", "mask_token", [](draft& x) -> field { return &x.job.model.mask_token; }, "bert"},
    {"model", "image", [](draft& x) -> field { return &x.job.model.image; }, "resnet, vgg"},
    {"model", "channels", [](draft& x) -> field { return &x.job.model.channels; }, "resnet, vgg"},
    {"model", "classes", [](draft& x) -> field { return &x.job.model.classes; }, "resnet, vgg"},
    {"data", "kind", [](draft& x) -> field { return &x.job.data.kind; }},
    {"data", "path", [](draft& x) -> field { return &x.job.data.path; }, "text, tokens, images"},
    {"data", "samples", [](draft& x) -> field { return &x.job.data.samples; }, "synthetic"},
    {"data", "seed", [](draft& x) -> field { return &x.job.data.seed; }, "synthetic"},
    {"data", "validation", [](draft& x) -> field { return &x.job.data.validation; }},
    {"batch", "global", [](draft& x) -> field { return &x.job.global_batch; }},
    {"batch", "micro", [](draft& x) -> field { return &x.job.micro_batch; }},
    {"optimizer", "kind", [](draft& x) -> field { return &x.job.optimizer.kind; }},
    {"optimizer", "learning_rate", [](draft& x) -> field { return &x.job.optimizer.learning_rate; }},
    {"optimizer", "schedule", [](draft& x) -> field { return &x.job.optimizer.schedule; }},
    {"optimizer", "warmup_steps", [](draft& x) -> field { return &x.job.optimizer.warmup_steps; }},
    {"optimizer", "weight_decay", [](draft& x) -> field { return &x.job.optimizer.weight_decay; }},
    {"optimizer", "momentum", [](draft& x) -> field { return &x.job.optimizer.momentum; }, "sgd"},
    {"optimizer", "beta1", [](draft& x) -> field { return &x.job.optimizer.beta1; }, "adamw"},
    {"optimizer", "beta2", [](draft& x) -> field { return &x.job.optimizer.beta2; }, "adamw"},
    {"optimizer", "epsilon", [](draft& x) -> field { return &x.job.optimizer.epsilon; }, "adamw"},
    {"optimizer", "clip_norm", [](draft& x) -> field { return &x.job.optimizer.clip_norm; }},
    {"parallel", "min_depth", [](draft& x) -> field { return &x.job.min_depth; }},
    {"parallel", "max_depth", [](draft& x) -> field { return &x.job.max_depth; }},
    {"parallel", "min_width", [](draft& x) -> field { return &x.job.min_width; }},
    {"parallel", "max_width", [](draft& x) -> field { return &x.job.max_width; }},
    {"parallel", "virtual_replicas", [](draft& x) -> field { return &x.job.virtual_replicas; }},
    {"parallel", "recompute", [](draft& x) -> field { return &x.job.recompute; }},
    {"keepers", "feed", [](draft& x) -> field { return &x.keeper_feed; }},
    {"keepers", "every", [](draft& x) -> field { return &x.job.keeper_every; }},
    {"keepers", "copies", [](draft& x) -> field { return &x.job.keeper_copies; }},
    {"planning", "policy", [](draft& x) -> field { return &x.job.policy; }},
    {"planning", "interval", [](draft& x) -> field { return &x.planning_interval; }},
    {"planning", "look_ahead", [](draft& x) -> field { return &x.job.look_ahead; }},
};

/// Number of single-character changes between two words (Levenshtein).
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    auto diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j)
      diagonal = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1])}));
  }
  return row.back();
}

/// Text of a file as it may stand in a one-line error: bounded, without control characters.
std::string shown(std::string_view text) {
  std::string result;
  for (char c : text.substr(0, 60))
    result += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  return text.size() > 60 ? result + "…" : result;
}

std::string listed(const std::vector<std::string_view>& words) {
  std::string result;
  for (auto word : words)
    result += (result.empty() ? "" : ", ") + std::string(word);
  return result;
}

/// What to say after an unknown word: the word probably meant, else all there are.
std::string advice(std::string_view word, const std::vector<std::string_view>& known) {
  if (word.size() <= 40) {
    auto nearest = std::min_element(known.begin(), known.end(),
                                    [&](auto a, auto b) { return distance(word, a) < distance(word, b); });
    if (distance(word, *nearest) <= std::max<std::size_t>(2, nearest->size() / 3))
      return "did you mean \"" + std::string(*nearest) + "\"?";
  }
  return "known are " + listed(known);
}

constexpr std::size_t max_dots = 10'000;

/// Dots outside of comment lines. The TOML library recurses once for each dot of a key, without a limit of its own.
std::size_t dots_in(std::string_view text) {
  std::size_t dots = 0;
  for (std::size_t start = 0; start < text.size();) {
    auto line = text.substr(start, text.find('\n', start) - start);
    if (auto first = line.find_first_not_of(" \t"); first != line.npos && line[first] != '#')
      dots += static_cast<std::size_t>(std::count(line.begin(), line.end(), '.'));
    start += line.size() + 1;
  }
  return dots;
}

class reader {
public:
  reader(std::string_view text, std::string_view name) : name_(name) {
    if (text.size() > max_job_file_bytes)
      fail("is larger than " + std::to_string(max_job_file_bytes) + " bytes");
    if (dots_in(text) > max_dots)
      fail("has more than " + std::to_string(max_dots) + " dots outside of comments; no job needs keys that deep");
    try {
      root_ = toml::parse(text, name);
    } catch (const toml::parse_error& error) {
      fail(shown_error(error.description()), error.source());
    }
  }

  job_specification read() {
    for (auto&& [key, value] : root_)
      read_section(key, value);
    fill_defaults();
    check();
    for (const auto& known : known_keys)
      check_use(known);
    return draft_.job;
  }

private:
  [[noreturn]] void fail(const std::string& problem, const toml::source_region& where = {}) const {
    auto place = name_;
    if (where.begin.line > 0)
      place += ":" + std::to_string(where.begin.line) + ":" + std::to_string(where.begin.column);
    throw job_file_error(place + ": " + problem);
  }

  static std::string shown_error(std::string_view text) {
    std::string result;
    for (char c : text.substr(0, 300))
      result += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    return result;
  }

  void read_section(const toml::key& section, const toml::node& node) {
    std::vector<std::string_view> sections;
    for (const auto& known : known_keys)
      if (sections.empty() || sections.back() != known.section)
        sections.push_back(known.section);
    if (std::find(sections.begin(), sections.end(), section.str()) == sections.end()) {
      std::vector<std::string_view> homes; // sections that have a key of this name
      for (const auto& known : known_keys)
        if (known.name == section.str())
          homes.push_back(known.section);
      auto problem = "\"" + shown(section) + "\" is not a section of a job file; ";
      fail(problem + (node.is_table() || homes.empty() ? advice(section, sections)
                                                       : "it belongs into [" + listed(homes) + "]"),
           section.source());
    }
    const auto* table = node.as_table();
    if (!table)
      fail(shown(section) + " must be a section: [" + shown(section) + "]", section.source());
    for (auto&& [key, value] : *table)
      read_key(section, key, value);
  }

  void read_key(std::string_view section, const toml::key& key, const toml::node& value) {
    std::vector<std::string_view> names;
    for (const auto& known : known_keys) {
      if (known.section != section)
        continue;
      if (known.name == key.str()) {
        auto path = std::string(section) + "." + std::string(key.str());
        std::visit([&](auto* target) { assign(*target, path, value); }, known.target(draft_));
        return;
      }
      names.push_back(known.name);
    }
    fail("\"" + shown(key) + "\" is not a key of [" + std::string(section) + "]; " + advice(key, names), key.source());
  }

  [[noreturn]] void wrong_type(const std::string& path, const toml::node& value, const std::string& right) const {
    fail(path + " must be " + right, value.source());
  }

  void assign(std::string& target, const std::string& path, const toml::node& value) {
    const auto* text = value.as_string();
    if (!text)
      wrong_type(path, value, "a string in quotes");
    target = text->get();
    if (target.find('\0') != std::string::npos)
      wrong_type(path, value, "a string without zero bytes");
  }

  void assign(bool& target, const std::string& path, const toml::node& value) {
    const auto* truth = value.as_boolean();
    if (!truth)
      wrong_type(path, value, "true or false");
    target = truth->get();
  }

  void assign(double& target, const std::string& path, const toml::node& value) {
    if (const auto* real = value.as_floating_point())
      target = real->get();
    else if (const auto* whole = value.as_integer())
      target = static_cast<double>(whole->get());
    else
      wrong_type(path, value, "a number");
  }

  template <class Integer>
  requires std::is_unsigned_v<Integer>
  void assign(Integer& target, const std::string& path, const toml::node& value) {
    const auto* whole = value.as_integer();
    if (!whole)
      wrong_type(path, value, "a whole number");
    constexpr auto most = std::min<std::uint64_t>(std::numeric_limits<Integer>::max(), INT64_MAX);
    if (whole->get() < 0 || static_cast<std::uint64_t>(whole->get()) > most)
      fail(path + " is " + std::to_string(whole->get()) + (whole->get() < 0 ? ", must not be negative" : ", too large"),
           value.source());
    target = static_cast<Integer>(whole->get());
  }

  void assign(std::chrono::milliseconds& target, const std::string& path, const toml::node& value) {
    const auto* text = value.as_string();
    auto duration = text ? parse_duration(text->get()) : std::nullopt;
    if (!duration)
      wrong_type(path, value, "a duration such as \"500ms\", \"30s\" or \"2m\"");
    target = *duration;
  }

  bool given(std::string_view path) const { return static_cast<bool>(root_.at_path(path)); }

  void fill_defaults() {
    auto& job = draft_.job;
    if (!given("job.name"))
      job.name = std::filesystem::path(name_).stem().string().substr(0, 100);
    if (given("job.steps") && given("job.samples"))
      fail_at("job.samples", "job.samples and job.steps must not be given both");
    if (!given("job.steps") && !given("job.samples"))
      fail_at("job.steps", "job.steps or job.samples must be given");
    if (given("job.samples") && job.global_batch > 0) {
      if (draft_.samples == 0)
        fail_at("job.samples", "job.samples must be at least 1");
      job.steps = (draft_.samples - 1) / job.global_batch + 1;
    }
    if (!given("data.path") && job.data.kind != "synthetic")
      fail_at("data.path", "data.path must name a file or folder");
    if (draft_.keeper_feed != "snapshot")
      fail_at("keepers.feed", "keepers.feed is \"" + shown(draft_.keeper_feed) + "\", must be \"snapshot\"");
    if (given("planning.interval"))
      job.planning_interval_ms = static_cast<std::uint64_t>(draft_.planning_interval.count());
    if (!given("parallel.virtual_replicas")) {
      job.virtual_replicas = 8;
      while (job.micro_batch > 0 && job.virtual_replicas > 1 && job.micro_batches() % job.virtual_replicas != 0)
        job.virtual_replicas /= 2;
    }
  }

  /// Fails at a key "section.name": its value, else its section, else the file.
  [[noreturn]] void fail_at(std::string_view path, const std::string& problem) const {
    if (auto value = root_.at_path(path))
      fail(problem, value.node()->source());
    if (auto section = root_.at_path(path.substr(0, path.find('.'))))
      fail(problem, section.node()->source());
    fail(problem);
  }

  /// A key that the kind of model, data or optimizer has no use for is a misunderstanding.
  void check_use(const known_key& known) const {
    const auto path = std::string(known.section) + "." + std::string(known.name);
    const auto& job = draft_.job;
    const auto& kind = known.section == "model"  ? job.model.kind
                       : known.section == "data" ? job.data.kind
                                                 : job.optimizer.kind;
    const auto kinds = ", " + std::string(known.kinds) + ", ";
    if (!known.kinds.empty() && given(path) && kinds.find(", " + kind + ", ") == kinds.npos)
      fail_at(path, path + " is for " + std::string(known.kinds) + ", but " + std::string(known.section) +
                        ".kind is \"" + kind + "\"; leave it out");
  }

  void check() const {
    auto problem = problem_of(draft_.job);
    if (problem.empty())
      problem = depth_problem_of(draft_.job);
    if (!problem.empty())
      fail_at(std::string_view(problem).substr(0, problem.find(' ')), shown_error(problem));
  }

  std::string name_;
  toml::table root_;
  draft draft_;
};

} // namespace

job_specification parse_job(std::string_view text, std::string_view name) {
  return reader(text, name).read();
}

job_specification parse_job_file(const std::filesystem::path& path) {
  std::string text;
  try {
    text = contents_of(path, max_job_file_bytes);
  } catch (const input_error& e) {
    throw job_file_error(path.string() + ": " + e.reason);
  }
  return parse_job(text, path.string());
}

} // namespace parcae
