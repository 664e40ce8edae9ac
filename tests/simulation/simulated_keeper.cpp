#include "tests/simulation/simulated_keeper.hpp"

#include <algorithm>
#include <cstring>
#include <utility>
#include <variant>

namespace parcae::simulation {

namespace {

layer_state state_of(const auto& x) {
  layer_state result{x.at, 0};
  std::memcpy(&result.bits, x.parts.at(0).data(), sizeof result.bits);
  return result;
}

} // namespace

simulated_keeper::simulated_keeper(const executor_surroundings& around, process_ptr p, const slot_id& slot,
                                   std::shared_ptr<disk> folder, std::function<void(report)> report_to) :
    data_end(std::move(p), slot),
    around_(around), disk_(std::move(folder)), report_to_(std::move(report_to)), machine_(slot, true) {
  if (around_.spoil_keeper)
    around_.spoil_keeper(machine_);
  around_.plane.add(*this);
}

simulated_keeper::~simulated_keeper() {
  *alive_ = false;
  if (around_.plane.remove(*this))
    around_.sees.gone(slot);
}

void simulated_keeper::later(nanoseconds delay, std::function<void()> what) {
  around_.time.after(process, delay, [what = std::move(what), alive = alive_] {
    if (*alive)
      what();
  });
}

void simulated_keeper::obey(keeper_command x) {
  around_.sees.given(slot, widened<command>(x), around_.time.now());
  queue_.push_back(std::move(x));
  if (queue_.size() == 1)
    later(around_.time.chance().between(0ms, 2ms), [this] { do_next(); });
}

void simulated_keeper::do_next() {
  const auto x = std::move(queue_.front());
  if (std::holds_alternative<replicate>(x))
    std::erase_if(copies_, [&](const copying& y) {
      const bool over = y.sent.expired();
      if (over)
        do_all(machine_.copied(y.what));
      return over;
    });
  do_all(machine_.take(x));
  queue_.pop_front();
  if (!queue_.empty())
    later(around_.time.chance().between(0ms, 2ms), [this] { do_next(); });
}

bool simulated_keeper::takes(const parcel& x) {
  if (!accepts_ || x.job != accepts_->job || permit_of(accepts_->key, x.permit.of).token != x.permit.token)
    return false;
  const auto is_refused = [&](const auto& y) { return !accepts_->admits->problem_of(y.second.at).empty(); };
  if (std::ranges::any_of(x.layers, is_refused))
    return false;
  for (const auto& block : x.losses)
    do_all(machine_.arrived(x.job, block, {}));
  for (const auto& [layer, state] : x.layers)
    receive(x.job, layer, state, x.result);
  do_all(machine_.caught_up());
  return true;
}

void simulated_keeper::receive(job_id job, std::uint32_t layer, const layer_state& x, const commit_result& made_by) {
  around_.sees.keeps(layer, x.at, x.bits);
  do_all(machine_.arrived(job, shard_with(layer, x.at, x.bits, layer == around_.with_course), made_by));
}

void simulated_keeper::on_connected(generation g) {
  do_all(machine_.connected(g));
}

void simulated_keeper::on_unreachable(generation g, std::uint32_t peer) {
  do_all(machine_.broke({g, failure::unreachable, peer, "nobody there", {}}));
}

void simulated_keeper::on_closed(generation g, std::uint32_t peer) {
  closed_.emplace(g, peer);
}

// Effects

void simulated_keeper::do_all(const keeper_machine::effects& all) {
  around_.sees.holds(slot, machine_.shards().held());
  for (const auto& x : all)
    std::visit([this](const auto& y) { do_one(y); }, x);
}

void simulated_keeper::do_one(const keeper_effects::say& x) {
  auto said = widened<report>(x.what);
  around_.sees.said(slot, said, around_.time.now());
  report_to_(std::move(said));
}

void simulated_keeper::do_one(const keeper_effects::connect& x) {
  closed_.clear();
  around_.plane.connect(x.plan, *this);
}

void simulated_keeper::do_one(const keeper_effects::send& x) {
  nanoseconds takes = 0ns;
  std::set<std::pair<generation, std::uint32_t>> to;
  for (const bool late : {false, true})
    for (const auto& [move, shard] : x.shards) {
      takes = around_.plane.move(x.of, move, state_of(*shard), late);
      to.emplace(x.of, move.destination);
    }
  later(takes, [this, g = x.of, to] {
    if (std::ranges::any_of(to, [&](const auto& y) { return closed_.contains(y); }))
      do_all(machine_.broke({g, failure::communication, 0, "a connection closed", {}}));
    else
      do_all(machine_.sent(g));
  });
}

void simulated_keeper::do_one(const keeper_effects::copy& x) {
  auto sent = std::make_shared<parcel>(parcel{x.what.job, x.permit, x.sent->result, {}});
  for (const auto& shard : x.sent->shards)
    if (shard->layer == losses_layer)
      sent->losses.push_back(std::static_pointer_cast<const shard_bytes>(shard->owner));
    else
      sent->layers.emplace_back(shard->layer, state_of(*shard));
  copies_.push_back({x.what, sent, std::make_shared<int>()});
  around_.plane.bring(process, x.what.to.slot, std::move(sent), copies_.back().wanted);
}

void simulated_keeper::do_one(const keeper_effects::end_copy& x) {
  std::erase_if(copies_, [&](const copying& y) { return y.what == x.what; });
}

void simulated_keeper::do_one(const keeper_effects::write& x) {
  later(around_.time.chance().between(5ms, 100ms), [this, x] {
    checkpointed answer{x.what.job, x.what.at, {}, "/" + slot.instance + "/" + x.what.name, {}};
    if (disk_->full) {
      answer.problem = "disk full";
    } else if (!x.shards.empty()) {
      disk_->folders[x.what.name] = {x.shards, x.made_by, x.losses};
      for (const auto& shard : x.shards)
        answer.layers.push_back(shard->layer);
    }
    do_one(keeper_effects::say{std::move(answer)});
  });
}

void simulated_keeper::do_one(const keeper_effects::read& x) {
  later(around_.time.chance().between(5ms, 200ms), [this, told = x.what] {
    const auto known = disk_->folders.find(told.folder);
    const bool is_there = known != disk_->folders.end();
    if (is_there)
      for (const auto& block : shards_of(known->second.losses, 0, told.at))
        do_all(machine_.arrived(told.job, block, {}));
    if (is_there)
      for (const auto& shard : known->second.shards)
        receive(told.job, shard->layer, {told.at, state_of(*shard).bits}, known->second.made_by);
    do_all(machine_.read({told.job, told.at, false, is_there ? "" : "there is no such folder", false}));
  });
}

void simulated_keeper::do_one(const keeper_effects::forget_job&) {
  accepts_.reset();
  copies_.clear();
}

} // namespace parcae::simulation
