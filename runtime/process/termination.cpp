#include "runtime/process/termination.hpp"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>

#include <unistd.h>

#include <csignal>

namespace parcae {

struct termination::implementation {
  boost::asio::io_context context{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work{context.get_executor()};
  boost::asio::signal_set signals{context, SIGTERM, SIGINT};
  std::function<void()> on_signal;
  std::function<void()> on_hangup;
  bool waiting = false; ///< for the next signal

  void wait_for_signal() {
    waiting = true;
    signals.async_wait([this](const boost::system::error_code& error, int number) {
      if (error)
        return;
      (number == SIGHUP ? on_hangup : on_signal)();
      wait_for_signal();
    });
  }
};

termination::termination() {
  // A closed pipe or terminal must not end the process, nor a signal that is often sent by mistake.
  for (const auto stray : {SIGPIPE, SIGHUP, SIGUSR1, SIGUSR2, SIGALRM})
    std::signal(stray, SIG_IGN);
  implementation_ = std::make_unique<implementation>();
}

termination::~termination() = default;

void termination::wait(std::function<void()> on_signal, std::function<void()> on_hangup) {
  implementation_->on_signal = std::move(on_signal);
  if ((implementation_->on_hangup = std::move(on_hangup)))
    implementation_->signals.add(SIGHUP);
  if (!implementation_->waiting)
    implementation_->wait_for_signal();
  implementation_->context.restart();
  implementation_->context.run();
}

void termination::stop() {
  boost::asio::post(implementation_->context, [this] { implementation_->context.stop(); });
}

void limit_shutdown(unsigned seconds) {
  std::signal(SIGALRM, SIG_DFL); // it ends the process
  alarm(seconds);
}

} // namespace parcae
