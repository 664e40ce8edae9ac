// The plot is a gnuplot script with its data inside, run by a gnuplot process.

#include "runtime/process.hpp"
#include "runtime/simulation_report.hpp"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace parcae {

namespace {

constexpr std::chrono::seconds plot_limit{60};

// Name of a run's data block.
std::string block(std::size_t run) {
  return "$run" + std::to_string(run);
}

// Draws to the standard output. The title comes as an argument: gnuplot expands what is in a script, and names of
// profiles and traces are not for it to carry out.
std::string script_of(const fleet_history& history, const std::vector<policy_run>& runs) {
  std::ostringstream text;
  text.imbue(std::locale::classic());
  text.precision(10);
  text << "$fleet << END\n";
  for (const auto& x : history)
    text << x.seconds / 3600 << ' ' << x.available << '\n';
  text << "END\n";
  for (std::size_t i = 0; i < runs.size(); ++i) {
    text << block(i) << " << END\n";
    for (const auto& x : runs[i].course) {
      text << x.hours << ' ';
      // Peers say nothing of their configuration.
      if (runs[i].published_samples_per_s)
        text << "NaN NaN";
      else
        text << x.used.slots() << ' ' << x.used.depth;
      text << ' ' << (runs[i].ideal > 0 ? 100 * x.samples / runs[i].ideal : 0) << '\n';
    }
    text << "END\n";
  }
  auto lines = [&](const char* columns, const char* style, bool peers) {
    std::string result;
    for (std::size_t i = 0; i < runs.size(); ++i)
      if (peers || !runs[i].published_samples_per_s)
        result += (result.empty() ? "" : ", ") + block(i) + " using " + columns + " with " + style + " lc " +
                  std::to_string(i + 1) + " title '" + runs[i].policy + "'";
    return result;
  };
  const auto slots = lines("1:2", "steps", false), depths = lines("1:3", "steps", false);
  text << "set terminal svg size 1000,900 noenhanced dynamic font 'sans,12' background 'white'\n"
       << "set multiplot layout " << (depths.empty() ? 2 : 3)
       << ",1 title ARG1\nset grid\nset key outside right top\nset lmargin 10\nset rmargin 18\nset yrange [0:*]\nset "
          "offsets 0, 0, "
          "graph 0.05, 0\n"
       << "set ylabel 'instances, slots in use'\n"
       << "plot $fleet using 1:2 with steps lw 2 lc 'gray' title 'available'" << (slots.empty() ? "" : ", ") << slots
       << '\n'
       << (depths.empty() ? "" : "set ylabel 'depth P'\nplot " + depths + '\n')
       << "set ylabel 'samples, % of the ideal'\nset xlabel 'hours'\n"
       << "plot " << lines("1:4", "lines lw 2", true) << "\nunset multiplot\n";
  return text.str();
}

} // namespace

void plot_runs(const std::string& path, const simulation_setting& setting, const fleet_history& history,
               const std::vector<policy_run>& runs) {
  const scratch_folder scratch("parcae-plot-");
  const auto script = scratch.path() / "script", drawn = scratch.path() / "drawn", errors = scratch.path() / "errors";
  std::ofstream(script) << script_of(history, runs);
  const auto title = setting.profile + " on " + std::filesystem::path(setting.trace).filename().string() + ", " +
                     setting.accounting + " accounting";
  child_process gnuplot({{"/usr/bin/env", "gnuplot", "-c", script.string(), title}, drawn, errors});
  const auto status = gnuplot.wait(plot_limit);
  if (status == 0) {
    std::ofstream file(path, std::ios::binary);
    file << std::ifstream(drawn, std::ios::binary).rdbuf();
    if (!file.flush())
      throw std::runtime_error("cannot write the plot to " + path);
    return;
  }
  if (status == 127)
    throw std::runtime_error("cannot draw " + path + ": install gnuplot (Debian: gnuplot-nox)");
  // It says: the command, a mark below it, `"SCRIPT" line N: what is wrong`.
  std::string line, why = "gnuplot does not end";
  for (std::ifstream file(errors); status && std::getline(file, line); why = line)
    if (const auto place = line.find(" line "); line.starts_with('"') && place != line.npos) {
      why = line.substr(line.find(": ", place) + 2);
      break;
    }
  throw std::runtime_error("cannot draw " + path + ": " + why);
}

} // namespace parcae
