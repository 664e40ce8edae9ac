#include "protocols/base/duration.hpp"
#include "protocols/values/job_keys.hpp"

#include <algorithm>
#include <array>
#include <charconv>

// What is printed of the table of keys.

namespace parcae {

namespace {

using enum on_resume;

constexpr std::string_view notes = R"(
A job file is TOML: sections, and "key = value" in them. Durations: 500ms, 30s, 2m, 24h. Sizes: 512MiB, 1GiB.
* must be the same when a job goes on from a checkpoint, unless --allow-change says that it may differ; [model] and optimizer.kind always must.

A step that is skipped (job.on_not_finite) is counted like any other, by the schedule and by adamw.

A job with job.kind = "serve" has of these: job.name, seed, threads, reproducible, transport, min_instances, [model] (gpt, or exported with serve=True), min and
max in [parallel], planning.interval, and [serve]. It is served as model.weights has it, or as version 0 is otherwise. [serve] is for no other job.

Data, by data.kind. Of a folder all regular files below it count, sorted by relative path; links below it are not followed.
  text          bytes, each a token. Sample i is the tokens from i*sequence to (i + 1)*sequence, both included; targets are the inputs, one token on.
  tokens        the same of unsigned numbers of token_bytes, little-endian, each below model.vocabulary. Files named *.npy: whole numbers of any size, of one
                dimension, or of two: then a row is a sample, of sequence + 1 tokens.
  images        CIFAR-10's binary format: per image a byte with the label, then a byte per value, channel by channel, row by row. Of a folder only *.bin.
  image_folder  JPEG and PNG, in a folder for each label; labels are the numbers of the folders, sorted by name.
  columns       what parcae_model.export_dataset wrote: a folder with samples.json and samples.bin.
  synthetic     made up from data.seed, without a path, and learnable: tokens that mostly follow from the one before, images half a pattern of their class.
Several sources instead of data.path, of one kind; of each 10 samples 7 are from the first here and 3 from the second, in an order drawn from job.seed:
  [[data.source]]
  path = "/data/books"
  weight = 7
  [[data.source]]
  path = "/data/code"
  weight = 3
)";

struct type_name {
  const char* operator()(std::string*) const { return "string"; }
  const char* operator()(bool*) const { return "true or false"; }
  const char* operator()(double*) const { return "number"; }
  const char* operator()(std::vector<double>*) const { return "numbers"; }
  const char* operator()(std::uint32_t*) const { return "whole number"; }
  const char* operator()(std::uint64_t*) const { return "whole number"; }
  const char* operator()(std::chrono::milliseconds*) const { return "duration"; }
  const char* operator()(steps_or_time*) const { return "steps or time"; }
  const char* operator()(memory_size*) const { return "size"; }
  const char* operator()(std::vector<std::uint32_t>*) const { return "whole numbers"; }
};

std::string digits(double x) {
  char text[40];
  return {text, std::to_chars(text, text + sizeof text, x, std::chars_format::fixed).ptr};
}

struct value_text {
  std::string operator()(const std::vector<double>* x) const {
    std::string result;
    for (auto value : *x)
      result += (result.empty() ? "" : ", ") + digits(value);
    return "[" + result + "]";
  }
  std::string operator()(const std::vector<std::uint32_t>* x) const {
    std::string result;
    for (auto value : *x)
      result += (result.empty() ? "" : ", ") + std::to_string(value);
    return "[" + result + "]";
  }
  std::string operator()(const memory_size* x) const { return "\"" + text_of_size(x->bytes) + "\""; }
  std::string operator()(const std::string* x) const { return "\"" + *x + "\""; }
  std::string operator()(const bool* x) const { return *x ? "true" : "false"; }
  std::string operator()(const std::chrono::milliseconds* x) const { return "\"" + to_string(*x) + "\""; }
  std::string operator()(const steps_or_time* x) const {
    return x->time.count() > 0 ? (*this)(&x->time) : (*this)(&x->steps);
  }
  template <class Number>
  std::string operator()(const Number* x) const {
    char text[40];
    return {text, std::to_chars(text, text + sizeof text, *x).ptr};
  }
};

struct range_text {
  std::string operator()(std::string_view x) const { return std::string(x); }
  std::string operator()(const one_of& x) const { return std::string(x.names); }
  std::string operator()(const text_length& x) const {
    return (x.least > 0 ? std::to_string(x.least) + " to " : "at most ") + std::to_string(x.most) + " bytes";
  }
  std::string operator()(const real_range& x) const { return digits(x.least) + ", below " + digits(x.below); }
  std::string operator()(const whole_range& x) const {
    return std::to_string(x.least) + " to " + std::to_string(x.most);
  }
};

using row = std::array<std::string, 5>;

row row_of(const job_key& x) {
  auto meaning = std::string(x.meaning);
  if (!x.kinds.empty())
    meaning = std::string(x.kinds) + " only" + (meaning.empty() ? "" : ": " + meaning);
  return {std::string(x.name) + (x.resume == fixed ? " *" : ""), type_of(x),
          x.usual.empty() ? value_of(x, {}) : std::string(x.usual), range_of(x), meaning};
}

} // namespace

std::string type_of(const job_key& x) {
  job_draft defaults;
  return std::visit(type_name{}, x.target(defaults));
}

std::string range_of(const job_key& x) {
  return std::visit(range_text{}, x.range);
}

std::string value_of(const job_key& x, job_draft job) {
  return std::visit(value_text{}, x.target(job));
}

std::string job_reference() {
  const row header{"", "type", "default", "range", "meaning"};
  std::array<std::size_t, 5> widths{};
  const auto measure = [&](const row& x) {
    for (std::size_t i = 0; i < x.size(); ++i)
      widths[i] = std::max(widths[i], x[i].size());
  };
  measure(header);
  for (const auto& x : job_keys())
    measure(row_of(x));
  std::string result;
  const auto add = [&](std::string first, const row& x) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      first += x[i];
      if (i + 1 < x.size())
        first.append(widths[i] + 2 - x[i].size(), ' ');
    }
    first.erase(first.find_last_not_of(' ') + 1);
    result += first + "\n";
  };
  add("  ", header);
  std::string_view section;
  for (const auto& x : job_keys()) {
    if (x.section != section)
      result += (x.section == data_sources ? "[[" : "[") + std::string(section = x.section) +
                (x.section == data_sources ? "]]\n" : "]\n");
    add("  ", row_of(x));
  }
  return result + std::string(notes);
}

} // namespace parcae
