#pragma once

#include "runtime/node/black_box.hpp"

#include <spdlog/sinks/base_sink.h>

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace parcae {

/// Writes the log to a black box. Any thread.
class black_box_sink : public spdlog::sinks::base_sink<std::mutex> {
public:
  explicit black_box_sink(std::shared_ptr<black_box> box) : box_(std::move(box)) {}

  using error_handler = std::function<void(const std::string& text, std::vector<std::string> log)>;

  /// From now on called for each line of level error or above, with its text and the lines of the log up to it, on the
  /// thread that logs, which holds the log: it must be quick and log nothing.
  void on_error(error_handler f);

private:
  void sink_it_(const spdlog::details::log_msg& x) override;
  void flush_() override {}

  std::shared_ptr<black_box> box_;
  error_handler on_error_; ///< may be empty
};

} // namespace parcae
