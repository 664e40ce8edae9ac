#pragma once

// The model that is served, as requests see it.

#include "protocols/openai/prompts.hpp"
#include "protocols/tokenizer/chat.hpp"
#include "protocols/tokenizer/tokenizer.hpp"
#include "protocols/values/job_specification.hpp"

#include <memory>
#include <optional>
#include <string>

namespace parcae {

/// Immutable: any thread.
class model_face {
public:
  /// Throws tokenizer_error: the job names a tokenizer that is not here, or is not understood, or a form of chats that
  /// it has no tokens for.
  explicit model_face(std::shared_ptr<const job_specification> job);
  model_face(const model_face&) = delete;

  const std::shared_ptr<const job_specification>& job() const { return job_; }
  const served_model& model() const { return model_; }
  const tokenizer* text() const { return model_.text; }
  const chat_writer* chats() const { return model_.chats; }

private:
  const std::shared_ptr<const job_specification> job_;
  std::optional<tokenizer> tokenizer_;
  std::optional<chat_writer> chats_;
  served_model model_;
};

} // namespace parcae
