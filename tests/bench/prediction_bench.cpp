// Whether the realistic cost model says what changes cost: runs the demo and compares the stall that was predicted when
// each change was first planned with the one measured, by kind of migration; those planned again, or after waiting for
// instances, are counted apart. Prints one JSON object per run, and its figures; fails if a median of one of the runs
// is not within 0.67 to 1.5. The demo has about 25 changes in each thousand steps, few of some kinds. Arguments: [seeds
// = 2] [steps = 3000] [first seed = 1].

#include "runtime/child/process.hpp"
#include "runtime/lab/demo_report.hpp"
#include "tests/bench/figures.hpp"

#include <boost/json.hpp>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iterator>

namespace parcae {
namespace {

using namespace std::chrono_literals;

constexpr double least = 0.67, most = 1.5;

/// The object that a demo's last line is.
boost::json::object run_demo(std::uint64_t seed, const std::string& steps) {
  const scratch_folder folder("prediction-bench");
  const auto out = folder.path() / "out";
  child_process demo({{sibling_program("parcae"), "demo", "--json", "--seed", std::to_string(seed), "--steps", steps},
                      out,
                      folder.path() / "err"});
  if (demo.wait(10min) != 0)
    throw std::runtime_error("the demo failed with seed " + std::to_string(seed));
  std::ifstream file(out);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  return boost::json::parse(text).as_object();
}

void judge(const std::string& name, const job_status& x, figures& out) {
  const auto others = std::ranges::count_if(x.changes, [](const auto& change) { return !went_as_planned(change); });
  out.note(name + ": changes planned again or after waiting", static_cast<double>(others));
  for (const auto* kind : {"intra_stage", "inter_stage", "pipeline"}) {
    const auto [ratio, count] = prediction_ratio(x, kind);
    out.note(name + ": changes, " + kind, static_cast<double>(count));
    out.between(name + ": predicted over measured stall, median, " + kind, ratio, least, most);
  }
}

int run(std::uint64_t seeds, const std::string& steps, std::uint64_t first) {
  figures out;
  for (auto seed = first; seed < first + seeds; ++seed) {
    job_status one;
    const auto demo = run_demo(seed, steps); // which the changes are part of
    for (const auto& x : demo.at("changes").as_array()) {
      auto& change = one.changes.emplace_back();
      change.kind = x.at("kind").as_string().c_str();
      change.predicted_ms = x.at("predicted_ms").to_number<double>();
      change.stall_ms = x.at("measured_ms").to_number<double>();
      change.plans = x.at("plans").to_number<std::uint32_t>();
      change.waited = x.at("waited").as_bool();
    }
    judge("seed " + std::to_string(seed), one, out);
  }
  return out.status();
}

} // namespace
} // namespace parcae

int main(int argc, char** argv) {
  return parcae::run(argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 2, argc > 2 ? argv[2] : "3000",
                     argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 1);
}
