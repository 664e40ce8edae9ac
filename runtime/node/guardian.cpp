#include "runtime/node/guardian.hpp"

#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <system_error>

namespace parcae {

struct guardian::shared {
  pthread_mutex_t alive; ///< held by the guarded process's main thread while it lives
};

namespace {

void end_connections() {
  DIR* folder = opendir("/proc/self/fd");
  if (!folder)
    return;
  while (const auto* entry = readdir(folder)) {
    const auto descriptor = std::atoi(entry->d_name);
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    // Standard streams may be another process's connection.
    if (descriptor > STDERR_FILENO && getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &size) == 0 &&
        (address.ss_family == AF_INET || address.ss_family == AF_INET6))
      shutdown(descriptor, SHUT_RDWR);
  }
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
      end_connections();
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
