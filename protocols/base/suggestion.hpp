#pragma once

// What to say after a word that is not known. Pure.

#include <string>
#include <string_view>
#include <vector>

namespace parcae {

/// Known words that the word was probably meant to be, or nothing: 'did you mean "width"?'.
std::string suggestion(std::string_view word, const std::vector<std::string_view>& known);

/// The same, and else all there are: "known are a, b".
std::string advice(std::string_view word, const std::vector<std::string_view>& known);

/// "a, b".
std::string listed(const std::vector<std::string_view>& words);

} // namespace parcae
