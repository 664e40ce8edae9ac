#include "gpu/data/sample_order.hpp"

#include "protocols/model/seed.hpp"

#include <bit>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>

namespace parcae {

namespace {

template <class Element>
void shuffle(std::vector<Element>& all, std::uint64_t seed) {
  std::mt19937_64 random{seed};
  for (auto i = all.size(); i-- > 1;)
    std::swap(all[i], all[random() % (i + 1)]);
}

} // namespace

sample_order::sample_order(std::uint64_t seed, std::uint64_t size) : seed_(seed), size_(size) {
  if (size == 0 || size >> 48 != 0)
    throw std::invalid_argument("an epoch of " + std::to_string(size) + " samples");
  if (size > max_listed)
    half_bits_ = static_cast<unsigned>(std::bit_width(size - 1) + 1) / 2;
}

std::uint64_t sample_order::operator()(std::uint64_t number) {
  const auto epoch = number / size_;
  if (half_bits_ > 0)
    return walk(epoch, number % size_);
  if (recent_[0].epoch != epoch) {
    std::swap(recent_[0], recent_[1]);
    if (recent_[0].epoch != epoch) {
      auto& order = recent_[0].order;
      order.resize(size_);
      std::iota(order.begin(), order.end(), 0u);
      shuffle(order, mix_seed(seed_, "epoch", {epoch}));
      recent_[0].epoch = epoch;
    }
  }
  return recent_[0].order[number % size_];
}

std::uint64_t sample_order::walk(std::uint64_t epoch, std::uint64_t place) const {
  constexpr std::uint64_t rounds = 6;
  const auto key = mix_seed(seed_, "epoch", {epoch});
  const auto half = (std::uint64_t{1} << half_bits_) - 1;
  do {
    auto low = place & half, high = place >> half_bits_;
    for (std::uint64_t round = 0; round < rounds; ++round)
      low = std::exchange(high, low) ^ (mix_seed(key, "round", {round, low}) & half);
    place = high << half_bits_ | low;
  } while (place >= size_); // at most every fourth place is below it
  return place;
}

mixed_order::mixed_order(std::uint64_t seed, const std::vector<std::uint64_t>& sizes,
                         std::vector<std::uint32_t> weights) :
    seed_(seed),
    weights_(std::move(weights)) {
  if (sizes.empty() || (weights_.empty() ? sizes.size() > 1 : weights_.size() != sizes.size()))
    throw std::invalid_argument("sources without weights");
  for (std::uint64_t s = 0; s < sizes.size(); ++s)
    orders_.emplace_back(sizes.size() == 1 ? seed : mix_seed(seed, "source", {s}), sizes[s]);
}

mixed_order::place mixed_order::operator()(std::uint64_t number) {
  if (orders_.size() == 1)
    return {0, orders_.front()(number)};
  const auto total = std::accumulate(weights_.begin(), weights_.end(), std::uint64_t{0});
  if (const auto cycle = number / total; cycle != cycle_) {
    std::vector<std::uint32_t> order;
    for (std::uint32_t s = 0; s < weights_.size(); ++s)
      order.insert(order.end(), weights_[s], s);
    shuffle(order, mix_seed(seed_, "sources", {cycle}));
    std::vector<std::uint32_t> seen(weights_.size());
    drawn_.clear();
    for (auto s : order)
      drawn_.emplace_back(s, seen[s]++);
    cycle_ = cycle;
  }
  const auto [source, before] = drawn_[number % total];
  return {source, orders_[source](cycle_ * weights_[source] + before)};
}

} // namespace parcae
