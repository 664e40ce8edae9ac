#pragma once

// A gateway's machines without connections: the test says what pipelines answer, and when.

#include "gpu/gateway/pipelines.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace parcae {

/// The token at a position of a request whose seed is this.
inline std::uint32_t token_at(std::uint64_t seed, std::uint32_t position) {
  return static_cast<std::uint32_t>((seed * 2654435761u + position * 40503u) >> 3) % 250;
}

/// A pipeline's stages, as one: they hold what they computed, and answer in order.
struct ring {
  std::map<std::uint64_t, std::uint32_t> held;
  std::deque<pass_answer> answers;
  std::uint64_t room = 1'000;
  std::set<std::uint64_t> poison; ///< requests whose row at position 12 makes a pass throw
  bool is_broken = false;
  std::vector<std::uint32_t> sizes{}; ///< of the passes that it took

  void take(const pass_frame& x) {
    if (is_broken)
      return;
    for (const auto id : x.over)
      held.erase(id);
    if (x.kind == pass_frame_kind::rows)
      sizes.push_back(x.size);
    pass_answer y{.kind = x.kind, .epoch = x.epoch, .number = x.number};
    if (x.kind == pass_frame_kind::held) {
      y.room = std::min(x.room, room);
      for (const auto& [id, position, token] : x.rows)
        y.tokens.push_back({id, held.contains(id) ? std::min(position, held[id]) : 0, 0});
    }
    auto then = held;
    for (const auto& row : x.rows)
      if (x.kind == pass_frame_kind::rows) {
        EXPECT_LE(row.position, then[row.request]) << "request " << row.request;
        then[row.request] = std::max(then[row.request], row.position + 1);
        if (poison.contains(row.request) && row.position == 12)
          y.kind = pass_frame_kind::failed;
      }
    is_broken = y.kind == pass_frame_kind::failed;
    if (x.kind == pass_frame_kind::rows && !is_broken) {
      held = std::move(then);
      for (const auto& [row, how] : x.draws)
        y.tokens.push_back(
            {x.rows[row].request, x.rows[row].position + 1,
             how.temperature == 2 ? pass_answer::no_token : token_at(how.seed, x.rows[row].position + 1)});
    }
    answers.push_back(std::move(y));
  }
};

/// A gateway without connections. What is said to pipelines is not answered before it is asked for.
struct gateway_rig {
  explicit gateway_rig(book_limits limits = {.queue = 1000, .wait_ms = 60'000, .stop_tokens = {250}}) :
      book(std::move(limits),
           {.on_token =
                [this](auto id, auto position, auto token) {
                  auto& stream = streams[id];
                  EXPECT_EQ(position, prompts.at(id) + stream.size());
                  stream.push_back(token);
                },
            .on_end = [this](auto id, auto why) { EXPECT_TRUE(ends.emplace(id, why).second); }},
           first),
      all(book, {.connect = [this](auto i) { wanted.insert(i); },
                 .cut =
                     [this](auto i) {
                       wanted.erase(i);
                       cut.push_back(i);
                     },
                 .send = [this](auto i, const auto& frame) { rings.at(i).take(frame); }}) {
    book.observe = [this](auto row, auto from) { of_requests.emplace_back(row, from); };
    all.observe = [this](auto row, auto from) { of_pipelines.emplace_back(row, from); };
  }

  static constexpr std::uint64_t first = 1000;

  std::uint64_t add(std::uint32_t prompt, std::uint32_t tokens, std::uint64_t seed, double temperature = 1) {
    request_wish x{.prompt = {}, .max_tokens = tokens, .how = {.seed = seed, .temperature = temperature}};
    for (std::uint32_t i = 0; i < prompt; ++i)
      x.prompt.push_back(i);
    const auto id = book.add(std::move(x), now);
    if (!id)
      return 0;
    prompts[*id] = prompt;
    seeds[*id] = seed;
    all.look(now);
    return *id;
  }

  void route(std::uint32_t count, std::uint32_t depth = 1, std::uint32_t batch = 4) {
    route(count, {.depth = depth, .batch = batch, .chunk = 4, .sizes = {8, 16}});
  }
  void route(std::uint32_t count, service_shape shape) {
    all.route(count, std::move(shape), now);
    rings.resize(count);
    for (auto& x : rings) {
      x.answers.clear();
      x.is_broken = false;
    }
  }
  void connect(std::uint32_t i) { all.connected(i, ++epochs, now); }
  /// The oldest answer that has not come.
  void answer(std::uint32_t i) {
    ASSERT_FALSE(rings[i].answers.empty());
    const auto x = rings[i].answers.front();
    rings[i].answers.pop_front();
    all.answered(i, x, now);
  }
  /// Until a pipeline has nothing to say.
  void settle(std::uint32_t i) {
    while (!rings[i].answers.empty())
      answer(i);
  }
  void say(std::uint32_t i, pass_frame_kind kind, std::uint64_t number = 0) {
    all.answered(i, {.kind = kind, .epoch = epochs, .number = number}, now);
  }
  /// With a tick each 100 ms.
  void pass_time(std::uint64_t ms) {
    for (std::uint64_t i = 0; i < ms; i += 100)
      all.tick(now += 100);
  }
  void serve(std::uint32_t count = 1) {
    route(count);
    for (std::uint32_t i = 0; i < count; ++i) {
      connect(i);
      answer(i);
    }
  }

  std::vector<std::uint32_t> right(std::uint64_t id, std::uint32_t tokens) {
    std::vector<std::uint32_t> result;
    for (std::uint32_t i = 0; i < tokens; ++i)
      result.push_back(token_at(seeds.at(id), prompts.at(id) + i));
    return result;
  }

  std::uint64_t now = 1, epochs = 0;
  std::vector<ring> rings;
  std::set<std::uint32_t> wanted; ///< pipelines that are to be connected
  std::vector<std::uint32_t> cut;
  std::map<std::uint64_t, std::uint32_t> prompts;
  std::map<std::uint64_t, std::uint64_t> seeds;
  std::map<std::uint64_t, std::vector<std::uint32_t>> streams;
  std::map<std::uint64_t, request_end> ends;
  std::vector<std::pair<std::size_t, request_phase>> of_requests;
  std::vector<std::pair<std::size_t, pipeline_phase>> of_pipelines;
  request_book book;
  pipelines all;
};

} // namespace parcae
