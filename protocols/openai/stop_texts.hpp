#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace parcae {

/// The text of an answer up to the stop that is complete first (of several there the longest), without it; the same
/// however the text is cut into pieces. Pure.
class stop_texts {
public:
  /// None is empty.
  explicit stop_texts(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  /// What may be sent by now: the end that may be the beginning of a stop is held back.
  std::string add(std::string_view text);
  /// What is held back: no more text comes.
  std::string end();

  bool found() const { return found_; } ///< a stop: nothing more is sent

private:
  std::size_t held_back() const;

  const std::vector<std::string> stops_;
  std::string held_; ///< shorter than the longest stop
  bool found_ = false;
};

} // namespace parcae
