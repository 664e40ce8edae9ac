#pragma once

// What benches train.

#include "protocols/values/job_specification.hpp"
#include "tests/support/texts.hpp"

#include <stdexcept>
#include <string>

namespace parcae {

/// A job that goes on for ever. "small": GPT of 10.0 M parameters, on text; "gpt2" and "gpt2-xl", the latter with
/// recomputation: GPT-2 of 124 M and of 1.5 G parameters on 1024 tokens, in bfloat16; "tiny": like gpt2 in all but its
/// sizes, to try what measures it. Throws std::invalid_argument.
inline job_specification bench_job(const std::string& model) {
  job_specification job;
  job.name = "bench";
  job.steps = 1'000'000;
  job.optimizer.clip_norm = 1;
  job.global_batch = 16;
  job.micro_batch = 4;
  if (model == "small") {
    job.model = {"gpt", 6, 368, 8, 128, 256, 0, true};
    job.data = {"text", texts()};
    return job;
  }
  job.precision = "bfloat16";
  job.data = {.kind = "synthetic"};
  if (model == "gpt2") {
    job.model = {"gpt", 12, 768, 12, 1024, 50'257, 0, true};
    job.global_batch = 64;
    job.micro_batch = 16;
  } else if (model == "gpt2-xl") {
    job.model = {"gpt", 48, 1600, 25, 1024, 50'257, 0, true};
    job.recompute = true;
  } else if (model == "tiny") {
    job.model = {"gpt", 2, 64, 2, 32, 512, 0, true};
  } else {
    throw std::invalid_argument("\"" + model + "\" is no model: small, gpt2, gpt2-xl, tiny");
  }
  return job;
}

} // namespace parcae
