#include "gpu/model/samples.hpp"

#include "gpu/model/seed.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

namespace parcae {

void mask_tokens(const model_specification& model, std::uint64_t seed, std::span<std::int64_t> input,
                 std::span<std::int64_t> target) {
  std::mt19937_64 random{seed};
  const auto places = input.size();
  const auto masked =
      std::max<std::size_t>(1, static_cast<std::size_t>(std::llround(0.15 * static_cast<double>(places))));
  std::vector<std::size_t> order(places);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::fill(target.begin(), target.end(), no_target);
  for (std::size_t i = 0; i < masked; ++i) {
    std::swap(order[i], order[i + random() % (places - i)]);
    auto& token = input[order[i]];
    target[order[i]] = token;
    if (const auto kind = random() % 10; kind < 8)
      token = model.mask_token;
    else if (kind == 8)
      token = static_cast<std::int64_t>(random() % model.vocabulary);
  }
}

sample_source::sample_source(const job_specification& job, std::shared_ptr<const dataset> data) :
    model_(job.model), seed_(job.seed), data_(std::move(data)), training_samples_(data_->size() - job.data.validation),
    order_(job.seed, training_samples_) {}

void sample_source::training(std::uint64_t number, std::span<std::int64_t> input, std::span<std::int64_t> target) {
  data_->read(order_(number), input, target);
  if (model_.of_masked_tokens())
    mask_tokens(model_, mix_seed(seed_, "mask", {number}), input, target);
}

void sample_source::validation(std::uint64_t index, std::span<std::int64_t> input,
                               std::span<std::int64_t> target) const {
  data_->read(training_samples_ + index, input, target);
  if (model_.of_masked_tokens())
    mask_tokens(model_, mix_seed(seed_, "validation mask", {index}), input, target);
}

} // namespace parcae
