#include "runtime/node/guardian.hpp"

#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <set>
#include <system_error>
#include <utility>

namespace parcae {

struct guardian::shared {
  pthread_mutex_t alive; ///< held by the guarded process's main thread while it lives
};

namespace {

/// A socket, whichever descriptors and processes have it.
using socket_number = std::pair<dev_t, ino_t>;

/// Calls `visit` with each descriptor of an internet socket that this process has, and the socket's number.
void for_each_connection(const std::function<void(int, const socket_number&)>& visit) {
  DIR* folder = opendir("/proc/self/fd");
  if (!folder)
    return;
  while (const auto* entry = readdir(folder)) {
    const auto descriptor = std::atoi(entry->d_name);
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    struct stat about {};
    if (getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &size) == 0 &&
        (address.ss_family == AF_INET || address.ss_family == AF_INET6) && fstat(descriptor, &about) == 0)
      visit(descriptor, {about.st_dev, about.st_ino});
  }
  closedir(folder);
}

} // namespace

guardian::guardian(const std::function<void()>& last_act) {
  void* memory = mmap(nullptr, sizeof(shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    throw std::system_error(errno, std::generic_category(), "cannot map memory for the guardian process");
  shared_ = new (memory) shared;
  pthread_mutexattr_t robust;
  pthread_mutexattr_init(&robust);
  pthread_mutexattr_setrobust(&robust, PTHREAD_MUTEX_ROBUST);
  pthread_mutexattr_setpshared(&robust, PTHREAD_PROCESS_SHARED);
  pthread_mutex_init(&shared_->alive, &robust);
  pthread_mutexattr_destroy(&robust);
  pthread_mutex_lock(&shared_->alive);
  // What this process was started with, standard streams among it, may be its parent's: shutdown() would end it there.
  std::set<socket_number> inherited;
  for_each_connection([&](int, const socket_number& x) { inherited.insert(x); });
  // fork() cannot share the table. What the library's fork() does besides is for processes with threads.
  child_ = static_cast<pid_t>(syscall(SYS_clone, CLONE_FILES | SIGCHLD, nullptr, nullptr, nullptr, nullptr));
  if (child_ < 0) {
    const auto error = errno;
    munmap(shared_, sizeof(shared));
    throw std::system_error(error, std::generic_category(), "cannot start the guardian process");
  }
  if (child_ == 0) {
    prctl(PR_SET_NAME, "parcae-guardian");
    for (auto signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) // meant for the guarded process, which decides
      std::signal(signal, SIG_IGN);
    if (pthread_mutex_lock(&shared_->alive) == EOWNERDEAD)
      for_each_connection([&](int descriptor, const socket_number& x) {
        if (!inherited.contains(x))
          shutdown(descriptor, SHUT_RDWR);
      });
    if (last_act)
      last_act();
    _exit(0);
  }
}

guardian::~guardian() {
  pthread_mutex_unlock(&shared_->alive);
  while (waitpid(child_, nullptr, 0) < 0 && errno == EINTR)
    continue;
  munmap(shared_, sizeof(shared));
}

} // namespace parcae
