#pragma once

// Hugging Face's tokenizer.json: byte-level BPE, as GPT-2, Llama 3, Qwen 2 and SmolLM have it.

#include "protocols/tokenizer/tokenizer.hpp"

#include <filesystem>
#include <string>
#include <string_view>

namespace parcae {

/// Throws tokenizer_error: one line that names `name`, the field and what it should be; also of what would make other
/// tokens than here, so that nothing is guessed.
tokenizer parse_tokenizer(std::string_view json, const std::string& name);

/// The same of a file. Throws tokenizer_error, also if it cannot be read.
tokenizer read_tokenizer(const std::filesystem::path& file);

} // namespace parcae
