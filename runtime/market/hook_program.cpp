#include "runtime/market/hook_program.hpp"

#include "protocols/base/printable.hpp"
#include "protocols/base/text.hpp"
#include "runtime/child/process.hpp"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <stdexcept>

namespace parcae {

namespace {

constexpr std::chrono::milliseconds look_again{5}; // whether it ended, or wrote too much
constexpr std::size_t max_errors = 1 << 20;

/// A file in memory, which the program opens by its path; nothing is left of it, however this process ends.
class memory_file {
public:
  explicit memory_file(const char* name) : file_(memfd_create(name, MFD_CLOEXEC)) {
    if (file_ < 0)
      throw std::runtime_error(std::string("no memory for a file: ") + std::strerror(errno));
  }
  ~memory_file() { close(file_); }
  memory_file(const memory_file&) = delete;
  memory_file& operator=(const memory_file&) = delete;

  std::string path() const { return "/proc/self/fd/" + std::to_string(file_); } ///< also in a child, until exec

  std::size_t size() const {
    struct stat x {};
    return fstat(file_, &x) == 0 && x.st_size > 0 ? static_cast<std::size_t>(x.st_size) : 0;
  }

  void write(const std::string& text) {
    for (std::size_t done = 0; done < text.size();) {
      const auto n = pwrite(file_, text.data() + done, text.size() - done, static_cast<off_t>(done));
      if (n <= 0)
        throw std::runtime_error(std::string("no memory for a file: ") + std::strerror(errno));
      done += static_cast<std::size_t>(n);
    }
  }

  /// The last bytes, `most` of them if there are.
  std::string end(std::size_t most) const {
    const auto all = size();
    std::string result(std::min(all, most), '\0');
    const auto n = pread(file_, result.data(), result.size(), static_cast<off_t>(all - result.size()));
    result.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
    return result;
  }

private:
  int file_;
};

/// The last line that says something, for a message.
std::string last_line(const std::string& text) {
  const auto end = text.find_last_not_of(" \t\r\n");
  if (end == std::string::npos)
    return "";
  const auto begin = text.find_last_of('\n', end);
  return ": " + printable(text.substr(begin == std::string::npos ? 0 : begin + 1, end - begin), 200);
}

std::string ending(int status) {
  if (status == 127)
    return "it cannot be started, or what it calls (status 127)";
  return status > 128 ? "it was ended by signal " + std::to_string(status - 128)
                      : "it ended with status " + std::to_string(status);
}

} // namespace

tl::expected<std::string, std::string> ask_program(const std::string& path, const std::string& request,
                                                   std::chrono::milliseconds limit, std::size_t most,
                                                   const std::stop_token& stop) try {
  memory_file said("request"), answer("answer"), errors("errors");
  said.write(request);
  const auto end = std::chrono::steady_clock::now() + limit;
  child_process program({{path}, answer.path(), errors.path(), said.path(), true});
  for (;;) {
    const auto status = program.wait(look_again);
    if (stop.stop_requested())
      return tl::unexpected(std::string("it was stopped"));
    if (answer.size() > most)
      return tl::unexpected("its answer has more than " + std::to_string(most) + " bytes");
    if (status)
      return *status == 0 ? tl::expected<std::string, std::string>(answer.end(most))
                          : tl::unexpected(ending(*status) + last_line(errors.end(1000)));
    if (errors.size() > max_errors)
      return tl::unexpected("it wrote over a million bytes of errors" + last_line(errors.end(1000)));
    if (std::chrono::steady_clock::now() >= end)
      return tl::unexpected("it did not answer within " + text_of_duration(limit) + last_line(errors.end(1000)));
  }
} catch (const std::runtime_error& e) {
  return tl::unexpected(std::string(e.what()));
}

} // namespace parcae
