// That ranks which follow the schedule, and nothing else, never wait for each other in a circle.

#include "protocols/schedule/pipeline_schedule.hpp"
#include "protocols/schedule/replica_tree.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace parcae {
namespace {

/// Something that is done by all of these ranks at once, or not at all: messages between them, which wait in the stream
/// of each. By one: it computes.
struct deed {
  std::string what;
  std::set<std::uint32_t> by;

  friend auto operator<=>(const deed&, const deed&) = default;
};

struct grid {
  std::uint32_t width, depth, micro_batches;

  std::uint32_t rank(std::uint32_t pipeline, std::uint32_t stage) const { return pipeline * depth + stage; }
  std::uint32_t count(std::uint32_t pipeline) const {
    const auto own = owned_replicas(micro_batches, width, pipeline);
    return own.last - own.first;
  }
};

std::string name_of(const pipeline_meeting& x) {
  return "output " + (x.output ? std::to_string(*x.output) : "-") + " gradient " +
         (x.gradient ? std::to_string(*x.gradient) : "-");
}

/// What a rank does in a step and an evaluation behind it, in its order.
class course {
public:
  course(const grid& on, std::uint32_t pipeline, std::uint32_t stage) : on_(on), pipeline_(pipeline), stage_(stage) {
    const auto count = on.count(pipeline);
    const auto operations = one_forward_one_backward(on.depth, stage, count);
    const pipeline_operation* before = nullptr;
    for (const auto& x : operations) {
      meet(std::exchange(before, &x), &x);
      compute((x.forward ? "forward " : "backward ") + std::to_string(x.position));
      if (stage == 0 && !x.forward && x.position + 1 == count)
        reduce();
    }
    meet(before, nullptr);
    if (stage > 0)
      reduce();
    if (on.depth > 1 && (stage == 0 || stage + 1 == on.depth))
      add("tied", {on.rank(pipeline, 0), on.rank(pipeline, on.depth - 1)});
    among_replicas("statistics");
    for (std::uint32_t i = 0; i < count; ++i) {
      const auto what = "evaluation " + std::to_string(i);
      if (stage > 0)
        add(what, {self() - 1, self()});
      compute("evaluates " + std::to_string(i));
      if (stage + 1 < on.depth)
        add(what, {self(), self() + 1});
    }
  }

  const std::vector<deed>& deeds() const { return deeds_; }

private:
  std::uint32_t self() const { return on_.rank(pipeline_, stage_); }
  void add(std::string what, std::set<std::uint32_t> by) { deeds_.push_back({std::move(what), std::move(by)}); }
  void compute(std::string what) { add(std::move(what), {self()}); }
  void meet(const pipeline_operation* made, const pipeline_operation* needs) {
    for (const auto& x : meetings_between(made, needs, on_.depth, stage_))
      add(name_of(x), {self(), x.ahead ? self() + 1 : self() - 1});
  }
  void reduce() {
    for (int round = 0; round < 3; ++round)
      among_replicas("round " + std::to_string(round));
  }
  void among_replicas(const std::string& what) {
    std::set<std::uint32_t> all;
    for (std::uint32_t d = 0; d < on_.width; ++d)
      all.insert(on_.rank(d, stage_));
    if (all.size() > 1)
      add(what + " of stage " + std::to_string(stage_), std::move(all));
  }

  const grid& on_;
  const std::uint32_t pipeline_, stage_;
  std::vector<deed> deeds_;
};

std::vector<std::vector<deed>> courses_on(const grid& on) {
  std::vector<std::vector<deed>> result;
  for (std::uint32_t d = 0; d < on.width; ++d)
    for (std::uint32_t s = 0; s < on.depth; ++s)
      result.push_back(course(on, d, s).deeds());
  return result;
}

/// What the two of them do together, in the order of one.
std::vector<deed> shared(const std::vector<deed>& of_one, std::uint32_t one, std::uint32_t other) {
  std::vector<deed> result;
  std::ranges::copy_if(of_one, std::back_inserter(result),
                       [&](const deed& x) { return x.by.contains(one) && x.by.contains(other); });
  return result;
}

/// Streams that do one deed after the other, each when it is the next one of all who do it. Who is left where, if
/// nobody can go on.
std::vector<std::string> left_waiting(const std::vector<std::vector<deed>>& courses) {
  std::vector<std::size_t> next(courses.size(), 0);
  const auto is_next = [&](std::uint32_t rank, const deed& x) {
    return next[rank] < courses[rank].size() && courses[rank][next[rank]] == x;
  };
  for (bool more = true; more;) {
    more = false;
    for (std::uint32_t rank = 0; rank < courses.size(); ++rank)
      while (next[rank] < courses[rank].size()) {
        const auto x = courses[rank][next[rank]];
        if (!std::ranges::all_of(x.by, [&](std::uint32_t other) { return is_next(other, x); }))
          break;
        for (const auto other : x.by)
          ++next[other];
        more = true;
      }
  }
  std::vector<std::string> result;
  for (std::uint32_t rank = 0; rank < courses.size(); ++rank)
    if (next[rank] < courses[rank].size())
      result.push_back("rank " + std::to_string(rank) + " in " + courses[rank][next[rank]].what);
  return result;
}

template <class F>
void for_all_grids(F f) {
  for (std::uint32_t depth = 1; depth <= 4; ++depth)
    for (std::uint32_t width = 1; width <= 4; ++width)
      for (auto micro_batches = width; micro_batches <= 8; ++micro_batches) {
        SCOPED_TRACE(std::to_string(width) + "x" + std::to_string(depth) + ", " + std::to_string(micro_batches));
        f(grid{width, depth, micro_batches});
      }
}

} // namespace

// given: all grids up to 4x4, up to 8 micro-batches / expected: any two ranks have the same meetings in the same order
TEST(pipeline_schedule, two_ranks_have_one_order) {
  for_all_grids([](const grid& on) {
    const auto courses = courses_on(on);
    for (std::uint32_t a = 0; a < courses.size(); ++a)
      for (std::uint32_t b = 0; b < a; ++b)
        EXPECT_EQ(shared(courses[a], a, b), shared(courses[b], a, b)) << a << " and " << b;
  });
}

// given: the same, in streams each of which stands still until all others are where it is / expected: all come to their
// ends
TEST(pipeline_schedule, nobody_waits_in_a_circle) {
  for_all_grids([](const grid& on) { EXPECT_EQ(left_waiting(courses_on(on)), std::vector<std::string>{}); });
}

// given: two stages that send first what they also have to receive at that time / expected: this test finds the circle
TEST(pipeline_schedule, messages_on_their_own_would_wait_in_a_circle) {
  auto courses = courses_on({1, 2, 2});
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    std::vector<deed> alone;
    for (const auto& x : courses[rank]) {
      const auto cut = x.what.find(" gradient ");
      if (cut == std::string::npos) {
        alone.push_back(x);
        continue;
      }
      const deed output{x.what.substr(0, cut), x.by}, gradient{x.what.substr(cut), x.by};
      alone.push_back(rank == 0 ? output : gradient);
      alone.push_back(rank == 0 ? gradient : output);
    }
    courses[rank] = alone;
  }
  EXPECT_FALSE(left_waiting(courses).empty());
}

// given: the same grids / expected: what an operation needs comes before it, what it made goes behind it, each once
TEST(pipeline_schedule, all_goes_when_it_is_there_and_comes_when_it_is_needed) {
  for_all_grids([](const grid& on) {
    for (std::uint32_t s = 0; s < on.depth; ++s) {
      const auto operations = one_forward_one_backward(on.depth, s, on.count(0));
      std::map<std::pair<std::string, std::uint32_t>, int> count;
      const auto note = [&](const std::vector<pipeline_meeting>& meetings) {
        for (const auto& x : meetings) {
          if (x.output)
            ++count[{x.ahead ? "gives output" : "takes output", *x.output}];
          if (x.gradient)
            ++count[{x.ahead ? "takes gradient" : "gives gradient", *x.gradient}];
        }
      };
      const pipeline_operation* before = nullptr;
      for (const auto& x : operations) {
        note(meetings_between(before, &x, on.depth, s));
        const auto p = x.position;
        EXPECT_EQ((count[{x.forward ? "takes output" : "takes gradient", p}]),
                  (x.forward ? s > 0 : s + 1 < on.depth) ? 1 : 0);
        EXPECT_EQ((count[{x.forward ? "gives output" : "gives gradient", p}]), 0);
        before = &x;
      }
      note(meetings_between(before, nullptr, on.depth, s));
      const auto neighbours = (s > 0 ? 1u : 0u) + (s + 1 < on.depth ? 1u : 0u);
      EXPECT_EQ(std::ranges::count_if(count, [](const auto& x) { return x.second == 1; }),
                2 * neighbours * on.count(0));
    }
  });
}

} // namespace parcae
