// The plot is a gnuplot script with its data inside.

#include "runtime/simulate/gnuplot.hpp"
#include "runtime/simulate/simulation_report.hpp"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <sstream>

namespace parcae {

namespace {

// Name of a run's data block.
std::string block(std::size_t run) {
  return "$run" + std::to_string(run);
}

// Of a policy's curves, in every plot the same: colours that the colour-blind can tell apart (Okabe and Ito), and
// widths with which curves that agree are seen below each other.
std::string style_of(const std::string& policy) {
  static const std::map<std::string, std::string> styles{
      {"ideal", "4.5 lc rgb '#56B4E9'"},  {"throughput", "3 lc rgb '#0072B2'"}, {"liveput", "1.5 lc rgb '#D55E00'"},
      {"varuna", "1.5 lc rgb '#CC79A7'"}, {"bamboo", "1.5 lc rgb '#009E73'"},   {"oobleck", "1.5 lc rgb '#E69F00'"}};
  const auto found = styles.find(policy);
  return " lw " + (found == styles.end() ? "1.5 lc rgb 'black'" : found->second);
}

std::string percent(double fraction) {
  char text[40];
  std::snprintf(text, sizeof text, " %.2f %%", 100 * fraction);
  return text;
}

// Distance of the marks of an axis of whole numbers up to `most`: 1, 2 or 5 times a power of ten, at most eight marks.
std::uint32_t marks_of(std::uint32_t most) {
  for (std::uint32_t power = 1;; power *= 10)
    for (const std::uint32_t digit : {1, 2, 5})
      if (most <= 8 * digit * power || power == 1'000'000'000)
        return digit * power;
}

bool says_configuration(const policy_run& x) {
  return !x.published_samples_per_s; // peers do not
}

// One curve per run, each with what it ends with in the legend; empty if there are none.
template <class Wanted, class End>
std::string curves_of(const std::vector<policy_run>& runs, const char* columns, const char* form, Wanted wanted,
                      End end) {
  std::string result;
  for (std::size_t i = 0; i < runs.size(); ++i)
    if (wanted(runs[i]))
      result += (result.empty() ? "" : ", ") + block(i) + " using " + columns + " with " + form +
                style_of(runs[i].policy) + " title '" + runs[i].policy + end(runs[i]) + "'";
  return result;
}

// Moments at which instances were lost, or told to go, with how many are left.
std::string losses_of(const fleet_history& history, std::optional<std::uint32_t> notice, bool told) {
  std::ostringstream text;
  text.imbue(std::locale::classic());
  text.precision(10);
  for (const auto& x : history) {
    const auto announced = notice ? (*notice > 0 ? x.lost : 0) : x.announced;
    if (told ? announced > 0 : x.lost > announced)
      text << x.seconds / 3600 << ' ' << x.available << '\n';
  }
  return text.str();
}

struct largest {
  std::uint32_t instances = 1;
  std::uint32_t depth = 1;
};

// What the curves are of, as blocks that have a name.
largest add_data(std::ostream& text, const fleet_history& history, const std::vector<policy_run>& runs) {
  largest most;
  text << "$fleet << END\n";
  for (const auto& x : history) {
    text << x.seconds / 3600 << ' ' << x.available << '\n';
    most.instances = std::max(most.instances, x.available);
  }
  text << "END\n";
  for (std::size_t i = 0; i < runs.size(); ++i) {
    text << block(i) << " << END\n";
    for (const auto& x : runs[i].course) {
      text << x.hours << ' ';
      if (says_configuration(runs[i]))
        text << x.used.slots() << ' ' << x.used.depth;
      else
        text << "NaN NaN";
      most.instances = std::max(most.instances, x.used.slots());
      most.depth = std::max(most.depth, x.used.depth);
      const double percent = runs[i].ideal > 0 ? 100 / runs[i].ideal : 0;
      text << ' ' << percent * x.samples << ' ' << percent * (x.ideal - x.samples) << '\n';
    }
    text << "END\n";
  }
  return most;
}

std::string script_of(const simulation_setting& setting, const fleet_history& history,
                      const std::vector<policy_run>& runs) {
  std::ostringstream text;
  text.imbue(std::locale::classic());
  text.precision(10);
  const auto [max_instances, max_depth] = add_data(text, history, runs);
  const auto nothing = [](const policy_run&) { return std::string(); };
  const auto slots = curves_of(runs, "1:2", "steps", says_configuration, nothing);
  const auto depths = curves_of(runs, "1:3", "steps", says_configuration, nothing);
  const auto samples = curves_of(
      runs, "1:4", "lines", [](const auto&) { return true; },
      [](const auto& x) { return percent(x.share_of_ideal()); });
  const auto lags = curves_of(
      runs, "1:5", "lines", [](const auto& x) { return x.policy != "ideal"; },
      [](const auto& x) { return percent(1 - x.share_of_ideal()); });
  std::string marks;
  for (const bool told : {false, true})
    if (const auto points = losses_of(history, setting.notice, told); !points.empty()) {
      const std::string name = told ? "$told" : "$lost";
      text << name << " << END\n" << points << "END\n";
      marks += ", " + name + " using 1:2 with points " +
               (told ? "pt 6 ps 0.8 lc rgb 'black' title 'notice'" : "pt 11 ps 0.8 lc rgb 'red' title 'loss'");
    }
  struct panel {
    const char* what;
    std::string axis; // commands
    std::string curves;
  };
  const auto whole = [](std::uint32_t most) { return "set yrange [0:*]\nset ytics " + std::to_string(marks_of(most)); };
  std::vector<panel> panels{
      {"instances, slots in use", whole(max_instances),
       "$fleet using 1:2 with steps lw 2 lc 'gray' title 'available'" + (slots.empty() ? "" : ", " + slots) + marks}};
  if (!lags.empty()) // from hundredths of a per cent to nearly all
    panels.push_back({"behind the ideal, % of all", "set logscale y\nset yrange [0.01:100]\nset ytics autofreq", lags});
  panels.push_back({"samples, % of the ideal", "set yrange [0:105]\nset ytics 20", samples});
  if (!depths.empty())
    panels.push_back({"depth P", whole(max_depth), depths});
  const double hours = history.empty() ? 1 : (history.back().seconds + interval_s) / 3600;
  text << "set terminal svg size 1000," << 290 * panels.size()
       << " noenhanced dynamic font 'sans,12' background 'white'\nset multiplot layout " << panels.size()
       << ",1 title ARG1\nset grid\nset key outside right top Left reverse\nset lmargin 10\nset rmargin 28\n"
       << "set xrange [0:" << hours << "]\nset offsets 0, 0, graph 0.05, 0\n";
  for (std::size_t i = 0; i < panels.size(); ++i)
    text << "set ylabel '" << panels[i].what << "'\nunset logscale\n"
         << panels[i].axis << (i + 1 == panels.size() ? "\nset xlabel 'hours'" : "") << "\nplot " << panels[i].curves
         << '\n';
  text << "unset multiplot\n";
  return text.str();
}

} // namespace

void plot_runs(const std::string& path, const simulation_setting& setting, const fleet_history& history,
               const std::vector<policy_run>& runs) {
  draw(path, script_of(setting, history, runs),
       {setting.profile + " on " + std::filesystem::path(setting.trace).filename().string() + ", " +
        setting.accounting + " accounting"});
}

} // namespace parcae
