#include "gpu/dataplane/nccl_communicator.hpp"

#include "gpu/dataplane/nccl_work.hpp"
#include "protocols/base/text.hpp"

#include <algorithm>
#include <stdexcept>
#include <thread>
#include <utility>

namespace parcae {

namespace {

/// Of the question how it is. NCCL's thread answers at once, or is stuck: then the watch on progress aborts.
constexpr std::chrono::hours longest_check{1};

constexpr tag id_tag{channel::nccl, 0, 0};

struct nccl_message : transmission {
  nccl_group::operation what;
  std::shared_ptr<nccl_group> of; ///< null: not yet given
};

class communicator_over_nccl final : public nccl_communicator {
public:
  communicator_over_nccl(std::unique_ptr<communicator> below, std::shared_ptr<nccl_work> work) :
      below_(std::move(below)), work_(std::move(work)) {}

  ~communicator_over_nccl() override {
    leave();
    below_->abort();
  }

  std::uint32_t self() const override { return below_->self(); }
  std::uint32_t size() const override { return below_->size(); }

  ticket send(std::uint32_t peer, tag what, const_memory_view x) override {
    if (!goes_by_nccl(peer, x.on))
      return below_->send(peer, what, x);
    return message(peer, true, {const_cast<std::byte*>(x.bytes.data()), x.bytes.size()}); // only read
  }

  ticket receive(std::uint32_t peer, tag what, memory_view x) override {
    return goes_by_nccl(peer, x.on) ? message(peer, false, x.bytes) : below_->receive(peer, what, x);
  }

  void give(std::span<const ticket> tickets) override {
    std::shared_ptr<nccl_group> group;
    for (const auto& t : tickets)
      if (auto* x = dynamic_cast<nccl_message*>(t.get())) {
        if (!group)
          group = std::make_shared<nccl_group>();
        x->of = group;
        if (!x->what.bytes.empty())
          group->operations.push_back(x->what);
      }
    if (!group)
      return;
    group->after = work_->slot().on.compute().record();
    work_->give(std::move(group));
  }

  void wait(const ticket& t, std::chrono::milliseconds limit) override {
    const auto x = std::dynamic_pointer_cast<nccl_message>(t);
    if (!x)
      return below_->wait(t, limit);
    if (!x->of)
      throw std::logic_error("a message is waited for that was not given");
    const auto moved = work_->wait_until_given(*x->of, nccl_work::clock::now() + limit);
    if (!moved)
      throw communication_error("no end of a message within " + text_of_duration(limit));
    if (!std::exchange(x->of->awaited, true))
      work_->slot().on.compute().wait_for(*moved);
  }

  /// Whether wait() needs no peer: so the order of what follows from it is the same each time.
  bool done(const ticket& t) override {
    const auto* x = dynamic_cast<const nccl_message*>(t.get());
    return x ? x->of || work_->stopped() : below_->done(t);
  }

  void check() override {
    below_->check();
    if (work_->in_use())
      work_->check(nccl_work::clock::now() + longest_check);
  }

  void abort() noexcept override {
    below_->abort();
    work_->abort();
  }

  void begin() override {
    if (!work_->begin())
      return;
    thread_ = std::thread([work = work_] { work->run(); });
    if (self() == 0) {
      id_ = work_->wait_for_id(nccl_work::clock::now() + work_->slot().limits.id);
      for (std::uint32_t peer = 1; peer < work_->size(); ++peer)
        sent_.push_back(below_->send(peer, id_tag, id_));
    } else {
      coming_ = below_->receive(0, id_tag, id_);
    }
  }

  report state() override {
    if (coming_ && below_->done(coming_)) {
      try {
        below_->wait(std::exchange(coming_, {}), std::chrono::milliseconds(0));
      } catch (const communication_error&) {
        id_ = {};
      }
      work_->tell(id_);
    }
    return work_->state();
  }

  void take_over() override { work_->take_over(); }

  void leave() override {
    if (std::exchange(left_, true))
      return;
    work_->let_end(nccl_work::clock::now() + work_->slot().limits.end);
    work_->abort();
    const auto problem = work_->end();
    if (!thread_.joinable())
      return;
    if (work_->ended())
      thread_.join();
    else
      thread_.detach(); // it has its share of the work
    if (!problem.empty())
      work_->slot().on_stuck(problem);
  }

private:
  bool goes_by_nccl(std::uint32_t peer, const device* on) const {
    if (!on || peer >= work_->size() || !work_->in_use())
      return false;
    if (on != &work_->slot().on)
      throw std::invalid_argument("memory of " + on->facts().place + " is not that of " +
                                  work_->slot().on.facts().place);
    return true;
  }

  ticket message(std::uint32_t peer, bool sends, std::span<std::byte> bytes) {
    if (peer == self())
      throw std::invalid_argument("participant " + std::to_string(peer) + " has no connection to itself");
    auto x = std::make_shared<nccl_message>();
    x->what = {peer, sends, bytes};
    return x;
  }

  const std::unique_ptr<communicator> below_;
  const std::shared_ptr<nccl_work> work_;
  std::thread thread_;
  nccl_id id_{};             ///< on its way by `below_`
  ticket coming_;            ///< that
  std::vector<ticket> sent_; ///< that
  bool left_ = false;
};

} // namespace

void nccl_failures::note_use(std::vector<slot_id> ranks) {
  std::ranges::sort(ranks);
  const lock held(mutex_);
  if (!has_all(ranks))
    in_a_row_ = 0;
  ranks_ = std::move(ranks);
}

void nccl_failures::note_failure(const std::string& why) {
  const lock held(mutex_);
  ++in_a_row_;
  why_ = why;
}

std::string nccl_failures::problem_among(std::vector<slot_id> ranks) const {
  std::ranges::sort(ranks);
  const lock held(mutex_);
  if (in_a_row_ < max_in_a_row || !has_all(ranks))
    return {};
  return "NCCL failed " + std::to_string(in_a_row_) + " times in a row, and no rank was lost; the last time: " + why_;
}

bool nccl_failures::has_all(const std::vector<slot_id>& ranks) const {
  return std::ranges::includes(ranks, ranks_);
}

std::unique_ptr<nccl_communicator> make_nccl_communicator(std::unique_ptr<communicator> below, nccl_ranks ranks,
                                                          std::shared_ptr<nccl_slot> slot) {
  const auto self = below->self();
  return std::make_unique<communicator_over_nccl>(std::move(below),
                                                  std::make_shared<nccl_work>(self, std::move(ranks), std::move(slot)));
}

} // namespace parcae
