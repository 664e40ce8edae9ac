#include "runtime/job/job_file.hpp"

#include "gpu/checkpoint/exported_weights.hpp"
#include "gpu/checkpoint/weights.hpp"
#include "gpu/data/dataset.hpp"
#include "protocols/base/duration.hpp"
#include "protocols/base/input_file.hpp"
#include "protocols/base/suggestion.hpp"
#include "protocols/base/toml.hpp"
#include "protocols/model/exported_model.hpp"
#include "protocols/model/model_description.hpp"
#include "protocols/values/job_keys.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <system_error>
#include <type_traits>
#include <vector>

namespace parcae {

namespace {

using namespace std::string_literals;

/// Text of a file as it may stand in a one-line error: bounded, without control characters.
std::string shown(std::string_view text) {
  std::string result;
  for (char c : text.substr(0, 60))
    result += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  return text.size() > 60 ? result + "…" : result;
}

constexpr std::string_view of_override = "--set ";
constexpr std::size_t max_override_bytes = 4096;
constexpr std::uint64_t max_steps = 1'000'000'000; // as the table of keys says

/// A word that is no TOML value, but whose meaning is clear: adamw, 60s, /data/text.
bool is_bare(std::string_view x) {
  return !x.empty() && std::ranges::all_of(x, [](unsigned char c) {
    return std::isalnum(c) || std::string_view("_./:~+@-").find(static_cast<char>(c)) != std::string_view::npos;
  });
}

class reader {
public:
  /// Of a job file.
  reader(std::string_view text, std::string_view name) : name_(name) {
    if (text.size() > max_job_file_bytes)
      fail("is larger than " + std::to_string(max_job_file_bytes) + " bytes");
    if (dots_in(text) > max_toml_dots)
      fail("has more than " + std::to_string(max_toml_dots) + " dots outside of comments; no job needs keys that deep");
    try {
      root_ = toml::parse(text, name);
    } catch (const toml::parse_error& error) {
      fail(shown_error(error.description()), error.source());
    }
  }

  /// Of a job that is changed.
  explicit reader(const job_specification& job) : name_("the job"), whole_(false) {
    draft_.job = job;
    draft_.planning_interval = std::chrono::milliseconds(job.planning_interval_ms);
    draft_.deadline = std::chrono::milliseconds(job.budget.deadline_ms);
    draft_.checkpoint_every = {job.checkpoint_every, std::chrono::milliseconds(job.checkpoint_every_ms)};
    draft_.cache.bytes = job.serve.cache_bytes;
    draft_.wait = std::chrono::milliseconds(job.serve.wait_ms);
  }

  /// "section.key=value": as if the file said so.
  void override_with(const std::string& text) {
    const auto name = std::string(of_override) + shown(text);
    const auto equals = text.find('=');
    const auto dot = text.find('.');
    if (equals == text.npos || dot > equals || text.find('.', dot + 1) < equals || text.size() > max_override_bytes ||
        dots_in(text) > 10)
      throw job_file_error(name + ": must be SECTION.KEY=VALUE, such as model.width=128");
    const auto trimmed = [](std::string_view x) {
      while (!x.empty() && x.front() == ' ')
        x.remove_prefix(1);
      while (!x.empty() && x.back() == ' ')
        x.remove_suffix(1);
      return x;
    };
    const auto section = trimmed(std::string_view(text).substr(0, dot));
    const auto key = trimmed(std::string_view(text).substr(dot + 1, equals - dot - 1));
    const auto value = trimmed(std::string_view(text).substr(equals + 1));
    if (section.empty() || key.empty() || value.empty())
      throw job_file_error(name + ": must be SECTION.KEY=VALUE, such as model.width=128");
    toml::table parsed;
    const auto quoted = "\"" + std::string(value) + "\"";
    try {
      parsed = toml::parse("value = " + std::string(value), name);
    } catch (const toml::parse_error& error) {
      if (!is_bare(value))
        throw job_file_error(name + ": " + shown_error(error.description()));
      parsed = toml::parse("value = " + quoted, name);
    }
    if (parsed.size() != 1)
      throw job_file_error(name + ": must be one value");
    const auto source = parsed.begin()->first.source();
    auto place = root_.emplace<toml::table>(toml::key(section, toml::source_region(source))).first;
    if (auto* table = place->second.as_table())
      parsed.get("value")->visit(
          [&](auto& x) { table->insert_or_assign(toml::key(key, toml::source_region(source)), std::move(x)); });
  }

  job_specification read() {
    check_kind();
    for (auto&& [key, value] : root_)
      read_section(key, value);
    fill_defaults();
    check(problem_of(draft_.job));
    if (given("job.epochs")) {
      count_steps();
      check(problem_of(draft_.job));
    }
    if (given("model.weights"))
      take_given_weights();
    check(model_problem_of(draft_.job));
    for (const auto& known : job_keys())
      check_use(known);
    return draft_.job;
  }

  bool given(std::string_view path) const { return static_cast<bool>(root_.at_path(path)); }

private:
  [[noreturn]] void fail(const std::string& problem, const toml::source_region& where = {}) const {
    if (where.path && where.path->starts_with(of_override))
      throw job_file_error(*where.path + ": " + problem);
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
    for (const auto& known : job_keys())
      if (known.section != data_sources && (sections.empty() || sections.back() != known.section))
        sections.push_back(known.section);
    if (std::find(sections.begin(), sections.end(), section.str()) == sections.end()) {
      std::vector<std::string_view> homes; // sections that have a key of this name
      for (const auto& known : job_keys())
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
      if (section.str() == "data" && key.str() == "source")
        read_sources(value);
      else
        read_key(section, key, value);
  }

  void read_sources(const toml::node& node) {
    const auto* all = node.as_array();
    if (!all || all->empty() || !all->is_homogeneous<toml::table>())
      wrong_type(std::string(data_sources), node, "a section with two brackets: [[data.source]]");
    draft_.job.data.source.clear();
    for (const auto& x : *all) {
      draft_.source = {};
      for (auto&& [key, value] : *x.as_table())
        read_key(data_sources, key, value);
      draft_.job.data.source.push_back(draft_.source);
    }
    draft_.source = {};
  }

  void read_key(std::string_view section, const toml::key& key, const toml::node& value) {
    std::vector<std::string_view> names;
    for (const auto& known : job_keys()) {
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

  void assign(std::vector<double>& target, const std::string& path, const toml::node& value) {
    const auto* all = value.as_array();
    if (!all || all->size() > 1000)
      wrong_type(path, value, "a list of numbers: [0.5, 0.5, 0.5]");
    target.clear();
    for (const auto& x : *all)
      assign(target.emplace_back(), path, x);
  }

  void assign(std::vector<std::uint32_t>& target, const std::string& path, const toml::node& value) {
    const auto* all = value.as_array();
    if (!all || all->size() > 1000)
      wrong_type(path, value, "a list of whole numbers: [1, 2]");
    target.clear();
    for (const auto& x : *all)
      assign(target.emplace_back(), path, x);
  }

  void assign(memory_size& target, const std::string& path, const toml::node& value) {
    const auto* text = value.as_string();
    const auto size = text ? parse_size(text->get()) : std::nullopt;
    if (!size)
      wrong_type(path, value, "a size such as \"512MiB\" or \"2GiB\"");
    target.bytes = *size;
  }

  void assign(std::chrono::milliseconds& target, const std::string& path, const toml::node& value) {
    const auto* text = value.as_string();
    auto duration = text ? parse_duration(text->get()) : std::nullopt;
    if (!duration)
      wrong_type(path, value, "a duration such as \"500ms\", \"30s\" or \"2m\"");
    target = *duration;
  }

  void assign(steps_or_time& target, const std::string& path, const toml::node& value) {
    if (value.is_string()) {
      target.steps = 0;
      assign(target.time, path, value);
    } else if (value.is_integer()) {
      target.time = {};
      assign(target.steps, path, value);
    } else {
      wrong_type(path, value, "a number of steps, or a duration such as \"30m\"");
    }
  }

  void fill_defaults() {
    auto& job = draft_.job;
    if (whole_ && !given("job.name"))
      job.name = std::filesystem::path(name_).stem().string().substr(0, 100);
    if (job.serves())
      return fill_serving();
    fill_length();
    if (whole_ && !given("data.path") && job.data.source.empty() && job.data.kind != "synthetic")
      fail_at("data.path", "data.path must name a file or folder");
    fill_common();
    job.budget.deadline_ms = static_cast<std::uint64_t>(draft_.deadline.count());
    job.checkpoint_every = draft_.checkpoint_every.steps;
    job.checkpoint_every_ms = static_cast<std::uint64_t>(draft_.checkpoint_every.time.count());
    if (whole_ && !given("parallel.virtual_replicas")) {
      job.virtual_replicas = 8;
      while (job.micro_batch > 0 && job.virtual_replicas > 1 && job.micro_batches() % job.virtual_replicas != 0)
        job.virtual_replicas /= 2;
    }
  }

  void fill_common() {
    auto& job = draft_.job;
    if (job.model.is_own() && given("model.path"))
      take_model();
    if (given("planning.interval"))
      job.planning_interval_ms = static_cast<std::uint64_t>(draft_.planning_interval.count());
  }

  void fill_serving() {
    auto& job = draft_.job;
    fill_common();
    job.optimizer.kind = "none";
    job.serve.cache_bytes = draft_.cache.bytes;
    job.serve.wait_ms = static_cast<std::uint64_t>(draft_.wait.count());
  }

  /// A key that jobs of this kind have no use for is a misunderstanding.
  void check_kind() const {
    const auto kind = root_.at_path("job.kind").value_or(draft_.job.kind);
    if (kind != "train" && kind != "serve")
      return; // is told later
    for (const auto& known : job_keys())
      if (const auto of = job_kind_of(known); !of.empty() && of != kind) {
        const auto path = known.section == data_sources ? std::string("data.source") : path_of(known);
        if (given(path))
          fail_at(path,
                  path + " is for jobs that " + std::string(of) + ", but job.kind is \"" + kind + "\"; leave it out");
      }
  }

  void fill_length() {
    auto& job = draft_.job;
    std::string_view length;
    for (std::string_view path : {"job.steps", "job.samples", "job.epochs"})
      if (given(path)) {
        if (!length.empty())
          fail_at(path, std::string(path) + " and " + std::string(length) + " must not be given both");
        length = path;
      }
    if (whole_ && length.empty())
      fail_at("job.steps", "job.steps, job.samples or job.epochs must be given");
    if (job.global_batch == 0)
      return; // is told later
    if (length == "job.samples") {
      if (draft_.samples == 0)
        fail_at(length, "job.samples must be at least 1");
      job.steps = (draft_.samples - 1) / job.global_batch + 1;
    } else if (length == "job.epochs") {
      job.steps = max_steps; // until the data is looked at
    }
  }

  void count_steps() {
    auto& job = draft_.job;
    std::uint64_t samples = 0;
    try {
      samples = load_dataset(job.data, job.model)->size() - job.data.validation;
    } catch (const std::exception& e) {
      fail_at("job.epochs", "job.epochs counts samples where the job is submitted: " + std::string(e.what()) +
                                "; give job.samples instead");
    }
    const auto steps = std::ceil(draft_.epochs * static_cast<double>(samples) / job.global_batch);
    if (!(steps > 0 && steps <= static_cast<double>(max_steps)))
      fail_at("job.epochs", "job.epochs must be above 0, and at most " + std::to_string(max_steps) + " steps");
    job.steps = static_cast<std::uint64_t>(steps);
  }

  /// What a model of the user's own says travels with the job. An exported one's folder has the same path on the nodes.
  void take_model() {
    auto& model = draft_.job.model;
    model.path = std::filesystem::absolute(model.path).lexically_normal().string();
    while (model.path.size() > 1 && model.path.back() == '/')
      model.path.pop_back();
    try {
      take_exported_model(model);
      if (model.kind == "exported")
        check_stored_weights(model);
    } catch (const std::runtime_error& e) {
      fail_at("model.path", e.what());
    }
  }

  /// What is there now is version 0, wherever the file is read later.
  void take_given_weights() {
    auto& model = draft_.job.model;
    model.weights_digests.clear();
    if (model.weights.empty())
      return;
    try {
      take_weights(model);
    } catch (const std::runtime_error& e) {
      fail_at("model.weights", std::string("model.weights: ") + e.what());
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
  void check_use(const job_key& known) const {
    const auto path = path_of(known);
    const auto& job = draft_.job;
    const auto& kind = known.section == "model"  ? job.model.kind
                       : known.section == "data" ? job.data.kind
                                                 : job.optimizer.kind;
    const auto kinds = ", " + std::string(known.kinds) + ", ";
    const bool fits = known.kinds == built_in ? !job.model.is_own() : kinds.find(", " + kind + ", ") != kinds.npos;
    if (!known.kinds.empty() && given(path) && !fits)
      fail_at(path, path + " is for " + std::string(known.kinds) + ", but " + std::string(known.section) +
                        ".kind is \"" + kind + "\"; leave it out");
  }

  void check(const std::string& problem) const {
    if (!problem.empty())
      fail_at(std::string_view(problem).substr(0, problem.find(' ')), shown_error(problem));
  }

  std::string name_;
  bool whole_ = true; ///< all of a job, not only changes
  toml::table root_;
  job_draft draft_;
};

} // namespace

job_specification parse_job(std::string_view text, std::string_view name, const job_overrides& overrides) {
  reader result(text, name);
  for (const auto& x : overrides)
    result.override_with(x);
  return result.read();
}

bool is_given(std::string_view key, const std::filesystem::path& file, const job_overrides& overrides) {
  auto result =
      file.empty() ? reader(job_specification{}) : reader(contents_of(file, max_job_file_bytes), file.string());
  for (const auto& x : overrides)
    result.override_with(x);
  return result.given(key);
}

job_specification with_overrides(const job_specification& job, const job_overrides& overrides) {
  reader result(job);
  for (const auto& x : overrides)
    result.override_with(x);
  return result.read();
}

job_specification parse_job_file(const std::filesystem::path& path, const job_overrides& overrides) {
  std::string text;
  try {
    text = contents_of(path, max_job_file_bytes);
  } catch (const input_error& e) {
    throw job_file_error(path.string() + ": " + e.reason);
  }
  return parse_job(text, path.string(), overrides);
}

} // namespace parcae
