// Job files, and changes to them from the command line: the first line is one.

#include "runtime/job/job_file.hpp"

#include "tests/fuzz/fuzz.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace parcae;
  fuzz_input input(data, size);
  const std::string change(input.take_line());
  try {
    const auto job = parse_job(input.rest(), "job.toml", change.empty() ? job_overrides{} : job_overrides{change});
    promise(problem_of(job).empty(), "what is accepted is good");
  } catch (const job_file_error& e) {
    const std::string_view what(e.what());
    promise(what.find('\n') == std::string_view::npos, "an error is one line");
    promise(what.starts_with("job.toml:") || (!change.empty() && what.starts_with("--set ")), "it says where");
    promise(what.size() < 500, "it is short");
  }
  return 0;
}
