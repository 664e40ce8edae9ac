#pragma once

// Clients of a served model for benches: requests that come as drawn beforehand, and when their tokens came.

#include "tests/bench/measure.hpp"
#include "tests/support/completion_client.hpp"

#include <chrono>
#include <cmath>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace parcae {

struct timed_request {
  double at_ms = 0; ///< of the course
  completion_wish wish;
};

struct timed_answer {
  double came_ms = 0, done_ms = 0; ///< of the course; done: the last token
  unsigned status = 0;             ///< of HTTP; 0: it was not answered to its end
  std::vector<double> tokens_ms{};

  double latency_ms() const { return done_ms - came_ms; }
};

/// Prompts of 32 to 128 bytes, answers of `least` to `most` tokens.
inline completion_wish drawn_wish(std::mt19937_64& draw, const std::string& model, int least, int most) {
  return {model, 32 + draw() % 97, least + static_cast<int>(draw() % static_cast<std::uint64_t>(most - least + 1)),
          static_cast<std::int64_t>(draw() >> 1), 1.0};
}

/// Poisson.
inline std::vector<timed_request> drawn_requests(double per_s, double seconds, const std::string& model, int least,
                                                 int most, std::uint64_t seed) {
  std::mt19937_64 draw(seed);
  std::exponential_distribution<double> gap(per_s / 1e3);
  std::vector<timed_request> result;
  for (double at = gap(draw); at < seconds * 1e3; at += gap(draw))
    result.push_back({at, drawn_wish(draw, model, least, most)});
  return result;
}

/// One course: its clock begins with it.
class service_course {
public:
  double now_ms() const { return since_ms(begin_); }
  void wait_until(double ms) const {
    std::this_thread::sleep_until(
        begin_ + std::chrono::duration_cast<steady::duration>(std::chrono::duration<double, std::milli>(ms)));
  }

  /// Any thread. `goes_on`: asked at each token; false: the client gives up.
  timed_answer ask(
      std::uint16_t port, const completion_wish& wish,
      const std::function<bool()>& goes_on = [] { return true; }) const {
    struct given_up {};
    timed_answer result{.came_ms = now_ms()};
    try {
      const auto answer = ask_stream(port, wish, [&](const auto&) {
        result.tokens_ms.push_back(now_ms());
        if (!goes_on())
          throw given_up{};
      });
      result.status = answer.status;
    } catch (const given_up&) {
    } catch (const std::exception&) { // nobody listens
    }
    result.done_ms = now_ms();
    return result;
  }

  /// Each request by a thread of its own when it is its time; `answer_of` is called there. In their order.
  std::vector<timed_answer> run(const std::vector<timed_request>& all,
                                const std::function<timed_answer(const completion_wish&)>& answer_of) const {
    std::vector<timed_answer> result(all.size());
    std::vector<std::jthread> clients;
    for (std::size_t i = 0; i < all.size(); ++i) {
      wait_until(all[i].at_ms);
      clients.emplace_back([&, i] {
        result[i] = answer_of(all[i].wish);
        result[i].came_ms = all[i].at_ms;
      });
    }
    clients.clear();
    return result;
  }

private:
  const steady::time_point begin_ = steady::now();
};

inline std::vector<double> latencies_of(const std::vector<timed_answer>& all) {
  std::vector<double> result;
  for (const auto& x : all)
    if (x.status == 200)
      result.push_back(x.latency_ms());
  return result;
}

} // namespace parcae
