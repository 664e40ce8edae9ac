#pragma once

// Parameters as Hugging Face's transformers loads them.

#include "gpu/checkpoint/checkpoint.hpp"

#include <filesystem>

namespace parcae {

/// Writes model.safetensors and config.json into `folder`, which is made if need be: what from_pretrained(folder) of
/// the model's class loads. Of gpt, bert, and exported models of Hugging Face. Throws checkpoint_error or
/// std::system_error.
void export_for_huggingface(checkpoint_reader& from, const std::filesystem::path& folder);

} // namespace parcae
