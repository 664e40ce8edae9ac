// A job's samples: which are trained on, how they are masked, in what order they come.

#include "gpu/data/samples.hpp"
#include "protocols/model/seed.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>
#include <utility>
#include <vector>

namespace parcae {
namespace {

TEST(samples, validation_samples_are_the_last_and_never_trained_on) {
  job_specification job;
  job.model = {.sequence = 4};
  job.data = {.kind = "synthetic", .samples = 20, .seed = 5, .validation = 6};
  auto data = load_dataset(job.data, job.model);
  sample_source samples(job, data);
  std::vector<std::int64_t> input(4), target(4), expected(4), expected_target(4);
  std::multiset<std::vector<std::int64_t>> trained, all;
  for (std::uint64_t i = 0; i < 14; ++i) {
    samples.training(i + 14, input, target); // the second epoch
    trained.insert(input);
    data->read(i, input, target);
    all.insert(input);
  }
  EXPECT_EQ(trained, all);
  for (std::uint64_t i = 0; i < 6; ++i) {
    samples.validation(i, input, target);
    data->read(14 + i, expected, expected_target);
    EXPECT_EQ(input, expected);
    EXPECT_EQ(target, expected_target);
  }
}

// given: sequence / expected: 15 %, at least one, of the places have targets; 80, 10, 10 % of these are masked, drawn,
// left
TEST(samples, masks_are_those_of_bert) {
  for (auto [sequence, masked] : {std::pair{512u, 77}, {64u, 10}, {13u, 2}, {3u, 1}}) {
    model_specification model{.kind = "bert", .sequence = sequence, .vocabulary = 1001, .mask_token = 1000};
    std::vector<std::int64_t> tokens(sequence, 7), input(sequence), target(sequence);
    double changed[3] = {};
    std::vector<double> at_place(sequence);
    const int draws = 40'000 / masked;
    for (int seed = 0; seed < draws; ++seed) {
      input = tokens;
      mask_tokens(model, static_cast<std::uint64_t>(seed), input, target);
      int targets = 0;
      for (std::size_t i = 0; i < sequence; ++i) {
        if (target[i] == no_target) {
          ASSERT_EQ(input[i], 7);
          continue;
        }
        ++targets;
        ++at_place[i];
        ASSERT_EQ(target[i], 7);
        changed[input[i] == 1000 ? 0 : input[i] != 7 ? 1 : 2] += 1.0 / 40'000;
      }
      ASSERT_EQ(targets, masked);
    }
    EXPECT_NEAR(changed[0], 0.8, 0.01);
    EXPECT_NEAR(changed[1], 0.1, 0.01);
    EXPECT_NEAR(changed[2], 0.1, 0.01);
    for (auto count : at_place) // each place as often as another, within 7 standard deviations
      EXPECT_NEAR(count, draws * double(masked) / sequence, 7 * std::sqrt(draws * double(masked) / sequence));
  }
}

TEST(samples, masks_differ_between_epochs_but_not_in_validation) {
  job_specification job;
  job.model = {.kind = "bert", .sequence = 64, .vocabulary = 257, .mask_token = 256};
  job.data = {.kind = "synthetic", .samples = 3, .seed = 5, .validation = 2};
  sample_source samples(job, load_dataset(job.data, job.model));
  std::vector<std::int64_t> a(64), b(64), target(64);
  samples.training(0, a, target);
  samples.training(1, b, target); // the same sample
  EXPECT_NE(a, b);
  samples.training(0, b, target);
  EXPECT_EQ(a, b);
  samples.validation(0, a, target);
  samples.validation(1, b, target);
  EXPECT_NE(a, b);
  samples.validation(0, b, target);
  EXPECT_EQ(a, b);
}

/// Written independently of the implementation: MT19937-64 as published by Nishimura and Matsumoto (2004).
class mersenne_twister {
public:
  explicit mersenne_twister(std::uint64_t seed) {
    state_[0] = seed;
    for (int i = 1; i < 312; ++i)
      state_[i] = 6364136223846793005u * (state_[i - 1] ^ (state_[i - 1] >> 62)) + static_cast<std::uint64_t>(i);
  }

  std::uint64_t next() {
    if (used_ == 312) {
      for (int i = 0; i < 312; ++i) {
        auto x = (state_[i] & 0xffffffff80000000u) | (state_[(i + 1) % 312] & 0x7fffffffu);
        state_[i] = state_[(i + 156) % 312] ^ (x >> 1) ^ (x % 2 == 1 ? 0xb5026f5aa96619e9u : 0);
      }
      used_ = 0;
    }
    auto x = state_[used_++];
    x ^= (x >> 29) & 0x5555555555555555u;
    x ^= (x << 17) & 0x71d67fffeda60000u;
    x ^= (x << 37) & 0xfff7eee000000000u;
    return x ^ (x >> 43);
  }

private:
  std::uint64_t state_[312];
  int used_ = 312;
};

std::vector<std::uint64_t> permutation(std::uint64_t seed, std::uint64_t epoch, std::uint64_t size) {
  mersenne_twister random{mix_seed(seed, "epoch", {epoch})};
  std::vector<std::uint64_t> result;
  for (std::uint64_t i = 0; i < size; ++i)
    result.push_back(i);
  for (auto left = size; left > 1; --left)
    std::swap(result[left - 1], result[random.next() % left]);
  return result;
}

TEST(sample_order, agrees_with_an_independent_permutation) {
  for (std::uint64_t size : {1, 2, 3, 10, 1000, 5000})
    for (std::uint64_t seed : {0, 1, 42}) {
      sample_order order{seed, size};
      for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
        auto expected = permutation(seed, epoch, size);
        for (std::uint64_t i = 0; i < size; ++i)
          ASSERT_EQ(order(epoch * size + i), expected[i]) << size << " samples, seed " << seed << ", epoch " << epoch;
      }
    }
}

// given: seed 1, 10 samples, 3 epochs / expected: what a Python program of the same description prints
TEST(sample_order, agrees_with_recorded_numbers) {
  sample_order order{1, 10};
  std::vector<std::uint64_t> numbers;
  for (std::uint64_t n = 0; n < 30; ++n)
    numbers.push_back(order(n));
  EXPECT_EQ(numbers, (std::vector<std::uint64_t>{9, 7, 3, 2, 8, 1, 6, 4, 5, 0, 0, 9, 2, 1, 3,
                                                 8, 5, 7, 4, 6, 1, 8, 3, 5, 0, 4, 2, 9, 6, 7}));
}

TEST(sample_order, every_epoch_has_every_sample_once_in_another_order) {
  sample_order order{3, 1000};
  std::vector<std::vector<std::uint64_t>> epochs(4);
  for (std::uint64_t n = 0; n < 4000; ++n)
    epochs[n / 1000].push_back(order(n));
  for (std::size_t i = 1; i < 4; ++i) {
    EXPECT_NE(epochs[i], epochs[i - 1]);
    EXPECT_TRUE(std::is_permutation(epochs[i].begin(), epochs[i].end(), epochs[0].begin()));
  }
}

TEST(sample_order, does_not_depend_on_what_was_asked_before) {
  std::mt19937_64 random{5};
  sample_order asked_at_random{9, 50};
  for (int i = 0; i < 2000; ++i) {
    auto number = random() % 1000;
    sample_order fresh{9, 50};
    ASSERT_EQ(asked_at_random(number), fresh(number)) << number;
  }
}

/// The permutation of large epochs, written from its description.
std::uint64_t walked(std::uint64_t seed, std::uint64_t epoch, std::uint64_t size, unsigned bits, std::uint64_t place) {
  const auto key = mix_seed(seed, "epoch", {epoch});
  const auto half = std::uint64_t{1} << bits;
  do {
    auto low = place % half, high = place / half;
    for (std::uint64_t round = 0; round < 6; ++round) {
      const auto mixed = high ^ mix_seed(key, "round", {round, low}) % half;
      high = low;
      low = mixed;
    }
    place = high * half + low;
  } while (place >= size);
  return place;
}

// given: more samples than are listed / expected: the network as described; each sample once in an epoch; no two epochs
// alike; neighbours far apart
TEST(sample_order, large_epochs_are_permuted_without_a_list) {
  for (const auto& [size, bits] : {std::pair{sample_order::max_listed + 1, 11u},
                                   {std::uint64_t{3'000'000'000}, 16u},
                                   {std::uint64_t{1} << 47, 24u}}) {
    sample_order order{5, size};
    for (std::uint64_t epoch = 0; epoch < 2; ++epoch)
      for (std::uint64_t i = 0; i < 500; ++i) {
        const auto place = i * (size / 500);
        ASSERT_EQ(order(epoch * size + place), walked(5, epoch, size, bits, place)) << size;
      }
  }
  constexpr auto size = sample_order::max_listed + 777;
  sample_order order{3, size};
  std::vector<bool> seen(size);
  std::uint64_t same = 0, ascents = 0;
  for (std::uint64_t i = 0; i < size; ++i) {
    const auto place = order(i);
    ASSERT_LT(place, size);
    ASSERT_FALSE(seen[place]);
    seen[place] = true;
    same += order(size + i) == place;
    ascents += i > 0 && order(i - 1) < place;
  }
  EXPECT_LT(same, 20u);
  EXPECT_NEAR(static_cast<double>(ascents) / size, 0.5, 0.005);
}

TEST(sample_order, impossible_sizes_are_refused) {
  EXPECT_THROW(sample_order(1, 0), std::invalid_argument);
  EXPECT_THROW(sample_order(1, std::uint64_t{1} << 48), std::invalid_argument);
}

} // namespace
} // namespace parcae
