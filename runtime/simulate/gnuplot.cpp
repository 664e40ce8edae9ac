#include "runtime/simulate/gnuplot.hpp"

#include "runtime/child/process.hpp"

#include <chrono>
#include <fstream>
#include <stdexcept>

namespace parcae {

namespace {

constexpr std::chrono::seconds plot_limit{60};

} // namespace

void draw(const std::string& path, const std::string& text, const std::vector<std::string>& words) {
  const scratch_folder scratch("parcae-plot-");
  const auto script = scratch.path() / "script", drawn = scratch.path() / "drawn", errors = scratch.path() / "errors";
  std::ofstream(script) << text;
  std::vector<std::string> command{"/usr/bin/env", "gnuplot", "-c", script.string()};
  command.insert(command.end(), words.begin(), words.end());
  child_process gnuplot({command, drawn, errors});
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
