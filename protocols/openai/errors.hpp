#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace parcae {

/// What a request is answered with instead: HTTP's status, and one line for people.
struct openai_error : std::runtime_error {
  openai_error(unsigned status, const std::string& line, std::string field = {}, std::string code = {}) :
      std::runtime_error(line), status(status), field(std::move(field)), code(std::move(code)) {}

  unsigned status;
  std::string field; ///< of the request, that is wrong; empty: none
  std::string code;  ///< OpenAI's word that programs decide by; empty: none
};

} // namespace parcae
