// Continuous batches: passes of rows by the gateway's schedule.

#include "planner/serving/batches.hpp"
#include "protocols/schedule/usual_times.hpp"

#include <algorithm>

namespace parcae::serving {

namespace {

// A pipeline: passes under way go through its stages one behind the other.
class line {
public:
  line(const stage_times& times, const pass_limits& limits, double now_ms) :
      schedule(limits), times_(&times), chunk_(limits.chunk), free_ms_(limits.depth, now_ms) {
    for (const auto size : times.sizes)
      if (size < times.stage_ms.size())
        usual_.took(size, times.stage_ms[size]);
  }

  double next_ms() const { return ends_ms_.empty() ? nothing_due : ends_ms_.front(); }

  // Begins what may begin.
  void start(double now_ms, std::vector<served_request>& requests) {
    for (;;) {
      if (has_replays && !times_->sizes.empty())
        schedule.replay_within(size_beside(times_->sizes, usual_, schedule.decoding(), chunk_));
      const auto* pass = schedule.next();
      if (!pass)
        break;
      std::uint32_t rows = 0;
      for (const auto& x : *pass) {
        rows += x.count;
        requests[x.request].computed += x.count;
      }
      const auto stage_ms = times_->stage_ms[rows], hop_ms = times_->hop_ms[rows];
      // When it would have to begin to find each stage free, were there no waits: so only maxima follow one another.
      double at_first_ms = now_ms, way_ms = 0;
      for (auto& free : free_ms_) {
        at_first_ms = std::max(at_first_ms, free - way_ms);
        free = at_first_ms + way_ms + stage_ms;
        way_ms += stage_ms + hop_ms;
      }
      ends_ms_.push_back(free_ms_.back());
    }
  }

  const std::vector<pass_schedule::request>& end_oldest() {
    ends_ms_.pop_front();
    return schedule.done();
  }

  pass_schedule schedule;
  bool has_replays = false; // or had

private:
  const stage_times* times_;
  const std::uint32_t chunk_;
  usual_times usual_;
  std::vector<double> free_ms_; // by stage: from when on
  std::deque<double> ends_ms_;  // of passes under way
};

class continuous final : public batches {
public:
  continuous(const pass_model& model, const batch_limits& limits, std::vector<served_request>& requests) :
      model_(model), limits_(limits), requests_(requests) {}

  void fill(request_queue& queue, double now_ms) override {
    if (stopped_)
      return;
    while (!queue.empty()) {
      const auto& x = requests_[queue.front()];
      const auto most = x.from.lengths.prompt + x.from.lengths.tokens;
      const auto to = pipeline_for(schedules_, most);
      if (!to)
        break;
      const auto replay = x.tokens > 0 ? known_positions(x) - 1 : 0;
      lines_[*to]->schedule.enter({queue.front(), known_positions(x), 0, most, replay});
      lines_[*to]->has_replays |= replay > 0;
      lines_[*to]->start(now_ms, requests_);
      queue.pop_front();
    }
  }

  double next_ms() const override {
    double result = nothing_due;
    for (const auto& x : lines_)
      result = std::min(result, x->next_ms());
    return result;
  }

  void advance(double now_ms) override {
    for (auto& line : lines_) {
      while (line->next_ms() <= now_ms) {
        const auto ms = line->next_ms();
        for (const auto& x : line->end_oldest()) {
          auto& request = requests_[x.id];
          if (++request.tokens == 1 && request.first_ms < 0)
            request.first_ms = ms;
          if (x.known == x.most)
            request.end_ms = ms;
        }
        if (!stopped_)
          line->start(ms, requests_);
      }
    }
  }

  bool stop(double) override {
    stopped_ = true;
    return std::ranges::all_of(lines_, [](const auto& x) { return x->schedule.under_way() == 0; });
  }

  std::vector<std::uint64_t> cached() const override {
    std::vector<std::uint64_t> result;
    for (const auto& line : lines_) {
      std::uint64_t positions = 0;
      for (const auto& x : line->schedule.requests())
        positions += x.sent;
      result.push_back(positions);
    }
    return result;
  }

  void change(const service_shape& shape, const std::vector<std::optional<std::uint32_t>>& heirs, request_queue& queue,
              double now_ms) override {
    const auto old = std::move(lines_);
    lines_.clear();
    schedules_.clear();
    const auto rows = limits_.requests + limits_.chunk;
    times_ = model_.times(shape.degree, shape.depth, rows);
    for (std::uint32_t i = 0; i < shape.width; ++i) {
      lines_.push_back(std::make_unique<line>(
          times_, pass_limits{shape.depth, limits_.requests, limits_.chunk, rows, UINT64_MAX, times_.sizes}, now_ms));
      schedules_.push_back(&lines_.back()->schedule);
    }
    std::vector<std::uint32_t> left;
    for (std::size_t i = 0; i < old.size(); ++i)
      for (const auto& x : old[i]->schedule.requests())
        if (heirs[i] && lines_[*heirs[i]]->schedule.has_room(x.most))
          lines_[*heirs[i]]->schedule.enter(x);
        else
          left.push_back(static_cast<std::uint32_t>(x.id));
    put_back(queue, std::move(left));
    stopped_ = false;
    for (auto& x : lines_)
      x->start(now_ms, requests_);
  }

  std::size_t running() const override {
    std::size_t result = 0;
    for (const auto& x : lines_)
      result += x->schedule.requests().size();
    return result;
  }

private:
  const pass_model& model_;
  const batch_limits limits_;
  std::vector<served_request>& requests_;
  stage_times times_;
  std::vector<std::unique_ptr<line>> lines_;
  std::vector<const pass_schedule*> schedules_; // theirs
  bool stopped_ = false;
};

} // namespace

void put_back(request_queue& queue, std::vector<std::uint32_t> numbers) {
  queue.insert(queue.end(), numbers.begin(), numbers.end());
  std::ranges::sort(queue);
}

std::unique_ptr<batches> continuous_batches(const pass_model& model, const batch_limits& limits,
                                            std::vector<served_request>& requests) {
  return std::make_unique<continuous>(model, limits, requests);
}

} // namespace parcae::serving
