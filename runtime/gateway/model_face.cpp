#include "runtime/gateway/model_face.hpp"

#include "protocols/base/enum_text.hpp"
#include "protocols/tokenizer/tokenizer_file.hpp"

#include <filesystem>
#include <system_error>
#include <utility>

namespace parcae {

namespace {

constexpr std::uint32_t bytes = 256;

/// None: the model is asked with tokens.
std::optional<tokenizer> tokenizer_of(const job_specification& job) {
  const auto& name = job.serve.tokenizer;
  if (name == "ids")
    return std::nullopt;
  if (name == "bytes")
    return byte_tokenizer();
  if (name != "auto")
    return read_tokenizer(name);
  // Beside an exported model's files, if this machine has them.
  if (const auto file = std::filesystem::path(job.model.path) / "tokenizer.json"; job.model.kind == "exported")
    if (std::error_code none; std::filesystem::exists(file, none))
      return read_tokenizer(file);
  return job.model.vocabulary == bytes ? std::optional(byte_tokenizer()) : std::nullopt;
}

} // namespace

model_face::model_face(std::shared_ptr<const job_specification> job) :
    job_(std::move(job)), tokenizer_(tokenizer_of(*job_)) {
  if (const auto form = parse_enum<chat_form>(job_->serve.chat); form && tokenizer_)
    chats_.emplace(*form, *tokenizer_);
  model_ = {.name = job_->served_name(),
            .text = tokenizer_ ? &*tokenizer_ : nullptr,
            .chats = chats_ ? &*chats_ : nullptr,
            .context = job_->context(),
            .vocabulary = job_->model.vocabulary};
}

} // namespace parcae
