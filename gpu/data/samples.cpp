#include "gpu/data/samples.hpp"

#include "protocols/model/seed.hpp"

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

namespace {

std::vector<std::uint64_t> training_samples(const job_specification& job, const dataset& data) {
  auto result = data.sizes();
  for (auto& x : result)
    x -= job.data.validation;
  return result;
}

std::vector<std::uint32_t> weights_of(const job_specification& job) {
  std::vector<std::uint32_t> result;
  for (const auto& x : job.data.source)
    result.push_back(x.weight);
  return result;
}

} // namespace

sample_source::sample_source(const job_specification& job, std::shared_ptr<const dataset> data) :
    model_(job.model), seed_(job.seed), data_(std::move(data)),
    masks_(model_.of_masked_tokens() && job.data.kind != "columns"), validation_(job.data.validation), first_{0},
    order_(job.seed, training_samples(job, *data_), weights_of(job)) {
  for (auto size : data_->sizes())
    first_.push_back(first_.back() + size);
}

std::uint64_t sample_source::place_of(std::uint64_t number) {
  const auto place = order_(number);
  return first_[place.source] + place.index;
}

void sample_source::training(std::uint64_t number, std::span<std::int64_t> input, std::span<std::int64_t> target) {
  data_->read_augmented(place_of(number), mix_seed(seed_, "augment", {number}), input, target);
  if (masks_)
    mask_tokens(model_, mix_seed(seed_, "mask", {number}), input, target);
}

void sample_source::validation(std::uint64_t index, std::span<std::int64_t> input,
                               std::span<std::int64_t> target) const {
  const auto end = first_.at(index / validation_ + 1);
  data_->read(end - validation_ + index % validation_, input, target);
  if (masks_)
    mask_tokens(model_, mix_seed(seed_, "validation mask", {index}), input, target);
}

} // namespace parcae
