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

class communicator_over_nccl final : public nccl_communicator {
public:
  communicator_over_nccl(std::unique_ptr<communicator> below, std::shared_ptr<nccl_work> work) :
      below_(std::move(below)), work_(std::move(work)) {
    for (std::uint32_t peer = 0; peer < work_->size(); ++peer)
      if (peer != work_->self())
        listeners_.emplace_back([work = work_.get(), peer] { work->listen(peer); });
  }

  ~communicator_over_nccl() override {
    leave();
    below_->abort();
  }

  std::uint32_t self() const override { return below_->self(); }
  std::uint32_t size() const override { return below_->size(); }

  ticket send(std::uint32_t peer, tag what, const_memory_view x) override {
    if (!goes_by_nccl(peer, x.on))
      return below_->send(peer, what, x);
    return post(peer, true, what, {const_cast<std::byte*>(x.bytes.data()), x.bytes.size()}); // only read
  }

  ticket receive(std::uint32_t peer, tag what, memory_view x) override {
    return goes_by_nccl(peer, x.on) ? post(peer, false, what, x.bytes) : below_->receive(peer, what, x);
  }

  void wait(const ticket& t, std::chrono::milliseconds limit) override {
    const auto x = std::dynamic_pointer_cast<nccl_message>(t);
    if (!x)
      return below_->wait(t, limit);
    const auto moved = work_->wait_until_given(*x, nccl_work::clock::now() + limit);
    if (!moved)
      throw communication_error("no end of a message within " + text_of_duration(limit));
    work_->slot().on.compute().wait_for(*moved);
    work_->check_message(*x);
  }

  bool done(const ticket& t) override {
    const auto x = std::dynamic_pointer_cast<nccl_message>(t);
    return x ? work_->settled(*x) : below_->done(t);
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
    if (work_->begin())
      thread_ = std::thread([work = work_] { work->run(); });
  }

  report state() const override { return work_->state(); }
  report wait_until_made() override { return work_->wait_until_made(); }
  void take_over() override { work_->take_over(); }

  void give_back() override {
    check();
    work_->give_back();
  }

  void leave() override {
    if (std::exchange(left_, true))
      return;
    work_->let_end(nccl_work::clock::now() + work_->slot().limits.end);
    work_->abort();
    const auto problem = work_->end();
    for (auto& x : listeners_)
      x.join();
    work_->drop_notes();
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

  ticket post(std::uint32_t peer, bool sends, tag what, std::span<std::byte> bytes) {
    if (peer >= size() || peer == self())
      throw std::invalid_argument("participant " + std::to_string(self()) + " has no connection to participant " +
                                  std::to_string(peer));
    auto x = std::make_shared<nccl_message>();
    x->peer = peer;
    x->sends = sends;
    x->what = what;
    x->bytes = bytes;
    x->after = work_->slot().on.compute().record();
    work_->post(x);
    return x;
  }

  const std::unique_ptr<communicator> below_;
  const std::shared_ptr<nccl_work> work_;
  std::vector<std::thread> listeners_;
  std::thread thread_;
  bool left_ = false;
};

} // namespace

void nccl_breaks::note_use(std::vector<slot_id> ranks) {
  std::ranges::sort(ranks);
  const lock held(mutex_);
  if (!has_all(ranks))
    in_a_row_ = 0;
  ranks_ = std::move(ranks);
}

void nccl_breaks::note_break(const std::string& why) {
  const lock held(mutex_);
  ++in_a_row_;
  why_ = why;
}

std::string nccl_breaks::problem_among(std::vector<slot_id> ranks) const {
  std::ranges::sort(ranks);
  const lock held(mutex_);
  if (in_a_row_ < max_in_a_row || !has_all(ranks))
    return {};
  return "NCCL broke " + std::to_string(in_a_row_) + " times in a row, and no rank was lost; the last time: " + why_;
}

bool nccl_breaks::has_all(const std::vector<slot_id>& ranks) const {
  return std::ranges::includes(ranks, ranks_);
}

std::unique_ptr<nccl_communicator> make_nccl_communicator(std::unique_ptr<communicator> below,
                                                          std::unique_ptr<communicator> notes,
                                                          std::vector<std::string> names,
                                                          std::shared_ptr<nccl_slot> slot,
                                                          std::shared_ptr<nccl_allowance> allowed) {
  return std::make_unique<communicator_over_nccl>(
      std::move(below),
      std::make_shared<nccl_work>(std::move(notes), std::move(names), std::move(slot), std::move(allowed)));
}

} // namespace parcae
