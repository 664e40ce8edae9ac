#include "tests/simulation/keeper_double.hpp"

#include <algorithm>
#include <cstring>
#include <utility>
#include <variant>

namespace parcae::simulation {

namespace {

shard_store::shard_ptr stored(std::uint32_t layer, const layer_state& x) {
  std::vector<std::byte> bytes(sizeof x.bits);
  std::memcpy(bytes.data(), &x.bits, sizeof x.bits);
  return std::make_shared<const shard_bytes>(shard_bytes{layer, x.at, {std::move(bytes)}});
}

layer_state state_of(const shard_bytes& x) {
  layer_state result{x.at, 0};
  std::memcpy(&result.bits, x.parts.at(0).data(), sizeof result.bits);
  return result;
}

} // namespace

keeper_double::keeper_double(const executor_surroundings& around, process_ptr p, const slot_id& slot,
                             std::shared_ptr<disk> folder, std::function<void(report)> report_to) :
    data_end(std::move(p), slot),
    around_(around), disk_(std::move(folder)), report_to_(std::move(report_to)) {
  around_.plane.add(*this);
}

keeper_double::~keeper_double() {
  *alive_ = false;
  if (around_.plane.remove(*this))
    around_.sees.gone(slot);
}

void keeper_double::later(nanoseconds delay, std::function<void()> what) {
  around_.time.after(process, delay, [what = std::move(what), alive = alive_] {
    if (*alive)
      what();
  });
}

void keeper_double::say(report x) {
  around_.sees.said(slot, x);
  report_to_(std::move(x));
}

void keeper_double::submit(command x) {
  queue_.push_back(std::move(x));
  if (queue_.size() == 1)
    later(around_.time.chance().between(0ms, 2ms), [this] { do_next(); });
}

void keeper_double::do_next() {
  const auto x = std::move(queue_.front());
  std::visit([this](const auto& y) { handle(y); }, x);
  queue_.pop_front();
  if (!queue_.empty())
    later(around_.time.chance().between(0ms, 2ms), [this] { do_next(); });
}

// What it holds

bool keeper_double::takes(const parcel& x) {
  if (!key_ || x.job != job_ || pass_of(*key_, x.pass.of).token != x.pass.token)
    return false;
  for (const auto& [layer, state] : x.layers)
    if (state.at.by > announced_)
      return false;
  for (const auto& [layer, state] : x.layers)
    add(stored(layer, state), x.result);
  report_kept();
  return true;
}

void keeper_double::add(shard_store::shard_ptr x, const commit_result& result) {
  around_.sees.keeps(x->layer, x->at, state_of(*x).bits);
  shards_.add(x, result);
}

void keeper_double::report_kept() {
  around_.sees.holds(slot, shards_.held());
  say(kept{job_, shards_.held(), shards_.results(), {}});
}

void keeper_double::handle(const guard& x) {
  job_ = x.job;
  key_ = x.key;
  announced_ = std::max(announced_, x.newest);
}

void keeper_double::handle(const confirm& x) {
  job_ = x.job;
  shards_.confirm(x.newest, x.safe, x.chain);
  for (const auto& link : x.chain)
    announced_ = std::max(announced_, link.by);
  around_.sees.holds(slot, shards_.held());
  kept answer{job_, shards_.held(), shards_.results(), {}};
  if (x.digests)
    for (const auto& held : shards_.held())
      if (held.at == x.newest)
        answer.digests.push_back({held.layer, std::to_string(state_of(*shards_.find(held.layer, held.at)).bits)});
  say(std::move(answer));
}

void keeper_double::handle(const replicate& x) {
  if (x.job != job_ || !key_)
    return;
  parcel copy{job_, pass_of(*key_, slot), shards_.result_of(x.at), {}};
  for (const auto layer : x.layers)
    if (const auto shard = shards_.find(layer, x.at))
      copy.layers.emplace_back(layer, state_of(*shard));
  around_.plane.bring(process, x.to.slot, std::make_shared<const parcel>(std::move(copy)), alive_);
}

void keeper_double::handle(const checkpoint& x) {
  std::vector<disk::file> files;
  checkpointed answer{x.job, x.at, {}, "/" + slot.instance + "/" + x.name, {}};
  for (const auto& held : shards_.held())
    if (held.at == x.at) {
      commit_result made_by;
      for (const auto& result : shards_.results())
        if (result.step + 1 == x.at.steps)
          made_by = result;
      files.push_back({shards_.find(held.layer, held.at), made_by});
      answer.layers.push_back(held.layer);
    }
  later(around_.time.chance().between(5ms, 100ms), [this, x, files, answer]() mutable {
    if (disk_->full) {
      answer.layers.clear();
      answer.problem = "disk full";
    } else if (!files.empty()) {
      disk_->folders[x.name] = files;
    }
    say(std::move(answer));
  });
}

void keeper_double::handle(const restore& x) {
  job_ = x.job;
  if (std::exchange(reading_, x.at) == x.at)
    return;
  shards_.go_back(x.at);
  later(around_.time.chance().between(5ms, 200ms), [this, x] {
    const auto known = disk_->folders.find(x.folder);
    if (known != disk_->folders.end())
      for (const auto& file : known->second)
        add(file.shard, file.made_by);
    reading_.reset();
    report_kept();
    say(restored{x.job, x.at, false, known == disk_->folders.end() ? "there is no such folder" : "", false});
  });
}

void keeper_double::handle(const forget& x) {
  if (x.job != job_)
    return;
  end_sending();
  shards_ = {};
  key_.reset();
  job_ = {};
  newest_ = announced_ = {};
  around_.sees.holds(slot, {});
}

// Its part in generations

void keeper_double::end_sending() {
  if (sending_)
    around_.plane.close(sending_->plan.next, *this);
  sending_.reset();
}

void keeper_double::handle(const prepare& x) {
  job_ = x.job;
  if (x.next == newest_ && sending_) {
    if (sending_->failure)
      say(*sending_->failure);
    else if (sending_->connected)
      say(prepared{x.next, checksum_of(x)});
    return;
  }
  if (x.next <= newest_)
    return;
  newest_ = x.next;
  end_sending();
  sending_ = std::make_unique<sending>();
  sending_->plan = x;
  around_.plane.connect(x, *this);
}

void keeper_double::on_connected(generation g) {
  if (!sends(g) || sending_->failure || std::exchange(sending_->connected, true))
    return;
  say(prepared{g, checksum_of(sending_->plan)});
}

void keeper_double::on_unreachable(generation g, std::uint32_t peer) {
  if (!sends(g) || sending_->connected || sending_->failure)
    return;
  sending_->failure = failed{g, failure::unreachable, peer, "nobody there", shards_.held()};
  say(*sending_->failure);
}

void keeper_double::handle(const transfer& x) {
  if (!sends(x.next))
    return;
  if (sending_->is_delivered)
    return say(delivered{x.next});
  if (sending_->failure)
    return say(*sending_->failure);
  const auto& plan = sending_->plan;
  for (const auto& move : plan.moves) {
    if (plan.target.participants[move.source].slot != slot)
      continue;
    const auto shard = shards_.find(move.layer, x.at);
    if (!shard) // what it said it holds was dropped meanwhile
      return say(failed{x.next, failure::refused, 0, "layer is not held at that version", shards_.held()});
    around_.plane.move(x.next, move, state_of(*shard));
  }
  sending_->is_delivered = true;
  say(delivered{x.next});
}

void keeper_double::handle(const abort_generation& x) {
  if (sends(x.current))
    end_sending();
  say(aborted{x.current, {}, no_step, {}, shards_.held()});
}

void keeper_double::handle(const release& x) {
  if (sends(x.current))
    end_sending();
}

} // namespace parcae::simulation
