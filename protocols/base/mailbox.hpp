#pragma once

// What a thread is given to do by others, in order.

#include "protocols/base/locks.hpp"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <optional>
#include <utility>

namespace parcae {

/// Any thread may call anything. Elements are destroyed without the lock.
template <class T>
class mailbox {
public:
  /// Does nothing once it is closed.
  void put(T x) {
    const lock held(mutex_);
    if (closed_)
      return;
    queue_.push_back(std::move(x));
    changed_.notify_one();
  }

  /// In the place of the first that `is_outdated`, which is returned; else like `put`.
  template <class Predicate>
  std::optional<T> replace(T x, Predicate is_outdated) {
    const lock held(mutex_);
    if (closed_)
      return std::nullopt;
    if (const auto old = std::find_if(queue_.begin(), queue_.end(), is_outdated); old != queue_.end())
      return std::exchange(*old, std::move(x));
    queue_.push_back(std::move(x));
    changed_.notify_one();
    return std::nullopt;
  }

  /// Waits for one. Nothing: it is closed.
  std::optional<T> take() {
    lock held(mutex_);
    while (queue_.empty() && !closed_)
      held.wait(changed_);
    return pop();
  }

  /// The same without waiting. Nothing: there is none now.
  std::optional<T> take_at_once() {
    const lock held(mutex_);
    return pop();
  }

  /// Whether there is a next one, for which the predicate holds.
  template <class Predicate>
  bool next_is(Predicate predicate) const {
    const lock held(mutex_);
    return !queue_.empty() && predicate(queue_.front());
  }

  /// From now on nothing is taken and nothing put. What there is stays: this thread may not be one to destroy it.
  void close() {
    const lock held(mutex_);
    closed_ = true;
    changed_.notify_all();
  }

  /// Destroys what there is.
  void drop() {
    std::deque<T> dropped;
    const lock held(mutex_);
    dropped.swap(queue_);
  }

  bool is_closed() const {
    const lock held(mutex_);
    return closed_;
  }

private:
  std::optional<T> pop() NEEDS_LOCK(mutex_) {
    if (queue_.empty() || closed_)
      return std::nullopt;
    std::optional<T> x(std::move(queue_.front()));
    queue_.pop_front();
    return x;
  }

  mutable mutex mutex_;
  std::condition_variable changed_;
  std::deque<T> queue_ GUARDED_BY(mutex_);
  bool closed_ GUARDED_BY(mutex_) = false;
};

} // namespace parcae
