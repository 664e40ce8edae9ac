#include "runtime/child/process.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <thread>
#include <utility>

namespace parcae {

namespace {

constexpr std::chrono::milliseconds poll_interval{2};

int status_of(int raw) {
  return WIFSIGNALED(raw) ? 128 + WTERMSIG(raw) : WEXITSTATUS(raw);
}

// What exec does not undo.
void forget_ours() {
  close_range(STDERR_FILENO + 1, ~0U, 0);
  for (int x = 1; x < NSIG; ++x)
    signal(x, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
}

struct stream_paths {
  const char *input, *output, *error; ///< input may be null
};

// In the child: only async-signal-safe calls.
[[noreturn]] void become(char* const* arguments, const stream_paths& streams, bool is_foreign, pid_t parent) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The parent may have died before the line above.
  if (getppid() != parent)
    _exit(127);
  if (streams.input) {
    auto in = open(streams.input, O_RDONLY | O_CLOEXEC);
    if (in < 0 || dup2(in, STDIN_FILENO) < 0)
      _exit(127);
  }
  auto out = open(streams.output, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  auto err = open(streams.error, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (out < 0 || err < 0 || dup2(out, STDOUT_FILENO) < 0 || dup2(err, STDERR_FILENO) < 0)
    _exit(127);
  if (is_foreign)
    forget_ours();
  execv(arguments[0], arguments);
  _exit(127);
}

} // namespace

child_process::child_process(const launch_options& options) {
  std::vector<std::string> arguments = options.arguments;
  std::vector<char*> pointers;
  for (auto& x : arguments)
    pointers.push_back(x.data());
  pointers.push_back(nullptr);
  auto output = options.standard_output.string();
  auto error = options.standard_error.string();
  auto input = options.standard_input.string();
  const stream_paths streams{input.empty() ? nullptr : input.c_str(), output.c_str(), error.c_str()};
  auto parent = getpid();
  pid_ = fork();
  if (pid_ < 0)
    throw std::runtime_error("cannot start " + arguments.at(0) + ": " + std::strerror(errno));
  if (pid_ == 0)
    become(pointers.data(), streams, options.is_foreign, parent);
}

child_process::child_process(child_process&& other) noexcept :
    pid_(std::exchange(other.pid_, -1)), status_(other.status_) {}

child_process& child_process::operator=(child_process&& other) noexcept {
  if (this != &other) {
    end();
    pid_ = std::exchange(other.pid_, -1);
    status_ = other.status_;
  }
  return *this;
}

child_process::~child_process() {
  end();
}

void child_process::end() {
  if (pid_ < 0)
    return;
  // SIGKILL also ends a stopped process; the wait is short.
  kill(-pid_, SIGKILL);
  if (!status_) {
    kill(pid_, SIGKILL);
    int raw = 0;
    while (waitpid(pid_, &raw, 0) < 0 && errno == EINTR)
      continue;
  }
  pid_ = -1;
}

void child_process::signal(int number) {
  if (pid_ > 0 && !poll())
    kill(pid_, number);
}

std::optional<int> child_process::poll() {
  int raw = 0;
  if (!status_ && pid_ > 0 && waitpid(pid_, &raw, WNOHANG) == pid_)
    status_ = status_of(raw);
  return status_;
}

std::optional<int> child_process::wait(std::chrono::milliseconds limit) {
  auto deadline = std::chrono::steady_clock::now() + limit;
  while (!poll() && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(poll_interval);
  return status_;
}

std::filesystem::path sibling_program(const std::string& name) {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() / name;
}

scratch_folder::scratch_folder(const std::string& prefix) {
  auto pattern = (std::filesystem::temp_directory_path() / (prefix + ".XXXXXX")).string();
  if (!mkdtemp(pattern.data()))
    throw std::runtime_error("cannot make a folder " + pattern + ": " + std::strerror(errno));
  path_ = pattern;
}

scratch_folder::~scratch_folder() {
  std::error_code ignored;
  if (!kept_)
    std::filesystem::remove_all(path_, ignored);
}

} // namespace parcae
