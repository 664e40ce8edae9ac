// Static batches, as SpotServe has them.

#include "planner/serving/batches.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace parcae::serving {

namespace {

struct static_batch {
  std::vector<std::uint32_t> requests; // none: it is free
  std::uint32_t had = 0;               // tokens of each when it began, or went on
  double begun_ms = 0;
  double before_ms = 0; // until the first token begins
  double token_ms = 0;
  double end_ms = nothing_due;
};

class in_static_batches final : public batches {
public:
  in_static_batches(const serving_profile& profile, std::uint32_t max_batch, std::vector<served_request>& requests) :
      profile_(profile), max_batch_(std::min(max_batch, profile.max_batch())), requests_(requests) {}

  void fill(request_queue& queue, double now_ms) override {
    if (stopped_)
      return;
    for (auto& x : batches_)
      if (x.requests.empty() && !queue.empty()) {
        const auto count = std::bit_floor(std::min<std::size_t>(queue.size(), max_batch_));
        x.requests.assign(queue.begin(), queue.begin() + static_cast<std::ptrdiff_t>(count));
        queue.erase(queue.begin(), queue.begin() + static_cast<std::ptrdiff_t>(count));
        begin(x, 0, now_ms);
      }
  }

  double next_ms() const override {
    double result = nothing_due;
    for (const auto& x : batches_)
      result = std::min(result, stopped_ ? nothing_due : x.end_ms);
    return result;
  }

  void advance(double now_ms) override {
    for (auto& x : batches_)
      if (!stopped_ && x.end_ms <= now_ms) {
        commit(x, x.end_ms);
        for (const auto number : x.requests)
          requests_[number].end_ms = x.end_ms;
        x = {};
      }
  }

  bool stop(double now_ms) override {
    if (!stopped_)
      for (auto& x : batches_)
        commit(x, now_ms);
    stopped_ = true;
    return true;
  }

  std::vector<std::uint64_t> cached() const override {
    std::vector<std::uint64_t> result;
    for (const auto& x : batches_) {
      std::uint64_t positions = 0;
      for (const auto number : x.requests)
        positions += x.had > 0 ? requests_[number].from.lengths.prompt + x.had : 0;
      result.push_back(positions);
    }
    return result;
  }

  void change(const service_shape& shape, const std::vector<std::optional<std::uint32_t>>& heirs, request_queue& queue,
              double now_ms) override {
    const auto old = std::move(batches_);
    batches_.assign(shape.width, {});
    shape_ = shape;
    stopped_ = false;
    std::vector<std::uint32_t> left;
    for (std::size_t i = 0; i < old.size(); ++i)
      if (heirs[i]) {
        auto& to = batches_[*heirs[i]];
        to.requests = old[i].requests;
        begin(to, old[i].had, now_ms);
      } else {
        for (const auto number : old[i].requests) {
          requests_[number].tokens = 0; // it begins anew
          left.push_back(number);
        }
      }
    put_back(queue, std::move(left));
  }

  std::size_t running() const override {
    std::size_t result = 0;
    for (const auto& x : batches_)
      result += x.requests.size();
    return result;
  }

private:
  std::uint32_t longest(const static_batch& x, std::uint32_t request_lengths::*length) const {
    std::uint32_t result = 0;
    for (const auto number : x.requests)
      result = std::max(result, requests_[number].from.lengths.*length);
    return result;
  }

  // With `had` tokens of each.
  void begin(static_batch& x, std::uint32_t had, double now_ms) const {
    x.end_ms = nothing_due;
    if (x.requests.empty())
      return;
    const auto count = static_cast<std::uint32_t>(x.requests.size());
    const auto parts = [&](std::uint32_t n) { return count % n == 0 ? n : 1; }; // as the artifact's engine
    const auto tokens = longest(x, &request_lengths::tokens);
    const auto cost = spotserve_cost(
        profile_, {shape_.degree, shape_.depth, count, parts(shape_.prompt_parts), parts(shape_.token_parts)}, tokens);
    const double prompt = longest(x, &request_lengths::prompt);
    x.had = had;
    x.begun_ms = now_ms;
    x.token_ms = cost.token_ms;
    // Embeddings are in the total alone.
    x.before_ms = had > 0 ? 0
                          : cost.total_ms - cost.token_ms * tokens +
                                cost.prompt_ms * (prompt / serving_profile::prompt_positions - 1);
    x.end_ms = x.begun_ms + x.before_ms + x.token_ms * (tokens - had);
    if (had == 0)
      for (const auto number : x.requests)
        requests_[number].computed += requests_[number].from.lengths.prompt;
  }

  // Tokens that are there by now.
  void commit(static_batch& x, double now_ms) const {
    if (x.requests.empty())
      return;
    const auto tokens = longest(x, &request_lengths::tokens);
    const double begun = (now_ms - x.begun_ms - x.before_ms) / x.token_ms;
    const auto more = now_ms >= x.end_ms ? tokens - x.had : static_cast<std::uint32_t>(std::clamp(begun, 0.0, 1e9));
    const auto have = std::min(tokens, x.had + more);
    for (const auto number : x.requests) {
      auto& request = requests_[number];
      const auto own = std::min(have, request.from.lengths.tokens);
      request.computed += own - std::min(request.tokens, own);
      request.tokens = own;
      if (have > 0 && request.first_ms < 0)
        request.first_ms = x.begun_ms + x.before_ms + x.token_ms;
    }
    x.had = have;
  }

  const serving_profile& profile_;
  const std::uint32_t max_batch_;
  std::vector<served_request>& requests_;
  service_shape shape_;
  std::vector<static_batch> batches_;
  bool stopped_ = false;
};

} // namespace

std::unique_ptr<batches> static_batches(const serving_profile& profile, std::uint32_t max_batch,
                                        std::vector<served_request>& requests) {
  return std::make_unique<in_static_batches>(profile, max_batch, requests);
}

} // namespace parcae::serving
