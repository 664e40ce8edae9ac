#include "runtime/node/black_box_sink.hpp"

#include <string_view>

namespace parcae {

void black_box_sink::on_error(error_handler f) {
  std::lock_guard lock(mutex_);
  on_error_ = std::move(f);
}

void black_box_sink::sink_it_(const spdlog::details::log_msg& x) {
  spdlog::memory_buf_t line;
  formatter_->format(x, line);
  const std::string_view text(line.data(), line.size());
  box_->write(text.substr(0, text.find_last_not_of("\r\n") + 1));
  if (x.level >= spdlog::level::err && on_error_)
    on_error_(std::string(x.payload.data(), x.payload.size()), box_->lines());
}

} // namespace parcae
