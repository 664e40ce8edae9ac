#include "gpu/keeper/keeper_machine.hpp"
#include "protocols/model/early_stop.hpp"

#include <algorithm>

// The table that a keeper runs, its conditions and its actions.

namespace parcae {

namespace {

/// With layers that go to another keeper: it may have joined just now.
constexpr std::uint64_t losses_copied = std::uint64_t{1} << 18;

} // namespace

struct keeper_machine::conditions {
  static bool new_key(const keeper_machine& m, const trigger& x) { return m.key_ != x.as<parcae::guard>().key; }
  static bool not_on_its_way(const keeper_machine& m, const trigger& x) {
    return std::ranges::count(m.copies_, x.as<parcae::replicate>()) == 0;
  }
  static bool no_folder(const keeper_machine& m, const trigger&) { return !m.has_folder_; }
  static bool not_of_its_job(const keeper_machine& m, const trigger& x) {
    return x.as<parcae::checkpoint>().job != m.job_;
  }
  static bool read_of_another(const keeper_machine& m, const trigger& x) { return x.as<restored>().job != m.job_; }
  static bool not_being_read(const keeper_machine& m, const trigger& x) {
    return m.reading_ != x.as<parcae::restore>().at;
  }
  static bool news(const keeper_machine& m, const trigger&) { return m.is_news_; }
  static bool lacks_a_layer(const keeper_machine& m, const trigger& x) {
    return m.first_missing(x.as<parcae::activate>().at).has_value();
  }
  static bool takes_part(const keeper_machine& m, const trigger& x) {
    return m.takes_part_in(x.as<parcae::abort_generation>().current);
  }
};

struct keeper_machine::actions {
  static void do_it(keeper_machine& m, keeper_effect x) { m.effects_.push_back(std::move(x)); }
  static void say(keeper_machine& m, keeper_report x) { do_it(m, keeper_effects::say{std::move(x)}); }

  static void kept(keeper_machine& m, std::vector<layer_digest> digests) {
    m.is_news_ = false;
    say(m, parcae::kept{m.job_, m.shards_.held(), m.shards_.results(), std::move(digests)});
  }
  static void kept(keeper_machine& m, const trigger&) { kept(m, std::vector<layer_digest>()); }

  static void take_snapshots(keeper_machine& m, const trigger& x) {
    const auto& told = x.as<parcae::guard>();
    m.admission_ = std::make_shared<snapshot_admission>(told.specification, told.newest);
    m.key_ = told.key;
    m.with_course_ = layer_with_course(told.specification);
    do_it(m, keeper_effects::take_snapshots{told.job, told.key, m.admission_});
  }
  static void announce(keeper_machine& m, const trigger& x) { m.admission_->announce(x.as<parcae::guard>().newest); }

  static void confirm(keeper_machine& m, const trigger& x) {
    const auto& told = x.as<parcae::confirm>();
    m.shards_.confirm(told.newest, told.safe, told.chain);
    if (m.admission_)
      for (const auto& link : told.chain)
        m.admission_->announce(link.by);
    std::erase_if(m.copies_, [&](const auto& y) {
      const bool goes = y.at.steps < told.safe.steps || is_void(y.at, told.chain);
      if (goes)
        do_it(m, keeper_effects::end_copy{y});
      return goes;
    });
    kept(m, told.digests ? m.shards_.digests(told.newest, m.with_course_) : std::vector<layer_digest>());
  }

  static void copy(keeper_machine& m, const trigger& x) {
    const auto& told = x.as<parcae::replicate>();
    auto sent = std::make_shared<snapshot>();
    sent->job = told.job;
    sent->result = m.shards_.result_of(told.at);
    for (auto& shard : shards_of(m.losses_, told.at.steps - std::min(told.at.steps, losses_copied), told.at))
      sent->shards.push_back(to_send(std::move(shard)));
    for (const auto layer : told.layers)
      if (auto shard = m.shards_.find(layer, told.at))
        sent->shards.push_back(to_send(std::move(shard)));
    m.copies_.push_back(told);
    do_it(m, keeper_effects::copy{told, permit_of(m.key_.value_or(secret_key{}), m.self_), std::move(sent)});
  }
  static void copied(keeper_machine& m, const trigger& x) { std::erase(m.copies_, x.as<parcae::replicate>()); }

  static void not_written(keeper_machine& m, const trigger& x, const char* why) {
    const auto& told = x.as<parcae::checkpoint>();
    say(m, checkpointed{told.job, told.at, {}, {}, why});
  }
  static void no_folder_to_write(keeper_machine& m, const trigger& x) {
    not_written(m, x, "this keeper has no folder for checkpoints");
  }
  static void nothing_to_write(keeper_machine& m, const trigger& x) {
    not_written(m, x, "nothing of that job is held");
  }
  static void write(keeper_machine& m, const trigger& x) {
    const auto& told = x.as<parcae::checkpoint>();
    std::vector<shard_store::shard_ptr> shards;
    for (const auto& held : m.shards_.held())
      if (held.at == told.at)
        shards.push_back(m.shards_.find(held.layer, held.at));
    auto losses = m.losses_;
    losses.go_back(told.at.steps);
    do_it(m, keeper_effects::write{told, std::move(shards), m.shards_.result_of(told.at), std::move(losses)});
  }

  static void no_folder_to_read(keeper_machine& m, const trigger& x) {
    const auto& told = x.as<parcae::restore>();
    say(m, restored{told.job, told.at, false, "this keeper has no folder for checkpoints"});
  }
  static void begin_to_read(keeper_machine& m, const trigger& x) {
    const auto& told = x.as<parcae::restore>();
    m.reading_ = told.at;
    m.shards_.go_back(told.at);
    do_it(m, keeper_effects::read{told});
  }
  static void add(keeper_machine& m, const trigger& x) {
    const auto& y = x.as<arrival>();
    m.is_news_ |= m.shards_.add(y.shard, y.result);
  }
  static void report_read(keeper_machine& m, const trigger& x) { say(m, x.as<restored>()); }
  static void kept_and_read(keeper_machine& m, const trigger& x) {
    m.reading_.reset();
    kept(m, x);
    report_read(m, x);
  }

  static void connect(keeper_machine& m, const trigger& x) {
    if (m.part_.phase != keeper_phase::absent)
      cut(m, x); // before its place is taken
    m.part_.plan = x.as<parcae::prepare>();
    m.part_.failure.reset();
    m.newest_ = m.part_.plan.next;
    do_it(m, keeper_effects::connect{m.part_.plan});
  }
  static void prepared(keeper_machine& m, const trigger&) {
    say(m, parcae::prepared{m.part_.plan.next, checksum_of(m.part_.plan)});
  }
  static void refuse(keeper_machine& m, const trigger& x) {
    const auto at = x.as<parcae::activate>().at;
    say(m,
        failed{m.part_.plan.next, failure::refused, 0,
               "layer " + std::to_string(*m.first_missing(at)) + " is not held at " + to_string(at), m.shards_.held()});
  }
  static void send(keeper_machine& m, const trigger& x) {
    const auto at = x.as<parcae::activate>().at;
    keeper_effects::send all{m.part_.plan.next, at, {}};
    for (const auto& move : m.part_.plan.moves)
      if (m.is_source(move))
        all.shards.emplace_back(move, m.shards_.find(move.layer, at));
    do_it(m, std::move(all));
  }
  static void fail(keeper_machine& m, const trigger& x) {
    m.part_.failure = x.as<failed>();
    failure_again(m, x);
  }
  static void failure_again(keeper_machine& m, const trigger&) {
    m.part_.failure->held = m.shards_.held();
    say(m, *m.part_.failure);
  }
  static void cut(keeper_machine& m, const trigger&) { do_it(m, keeper_effects::cut{m.part_.plan.next}); }
  static void aborted(keeper_machine& m, const trigger& x) {
    const auto& told = x.as<parcae::abort_generation>();
    say(m, parcae::aborted{told.current, {}, no_step, {}, m.shards_.held(), m.losses_from(told.recorded)});
  }
  static void cut_and_aborted(keeper_machine& m, const trigger& x) {
    cut(m, x);
    aborted(m, x);
  }

  static void forget(keeper_machine& m, const trigger&) {
    do_it(m, keeper_effects::forget_job{m.job_});
    m.job_ = {};
    m.key_.reset();
    m.admission_.reset();
    m.with_course_.reset();
    m.shards_ = {};
    m.losses_ = {};
    m.is_news_ = false;
    m.reading_.reset();
    m.copies_.clear();
    m.newest_ = {};
  }
};

// clang-format off
const std::vector<keeper_machine::row> keeper_machine::rows = [] {
  using enum keeper_phase;
  using enum keeper_trigger;
  using c = conditions;
  using a = actions;
  return std::vector<row>{
    {no_job, named, "", nullptr, "serves it", nullptr, holding},
    {holding, guard, "its key is new", c::new_key, "takes snapshots", a::take_snapshots, {}},
    {holding, guard, "", nullptr, "takes those of newer generations, too", a::announce, {}},
    {holding, arrived, "", nullptr, "holds it, unless it is void or old", a::add, {}},
    // Once for all that came, not with each shard.
    {holding, caught_up, "it holds more than it said", c::news, "KEPT", a::kept, {}},
    {holding, confirm, "", nullptr, "drops what is void or old; ends its copies; KEPT", a::confirm, {}},
    // It is asked for until the other one says that it has it.
    {holding, replicate, "it is not on its way", c::not_on_its_way, "sends it to the other keeper", a::copy, {}},
    {holding, copied, "", nullptr, "it may be asked for again", a::copied, {}},

    // Without an answer the conductor would wait for a checkpoint that does not come.
    {{no_job, holding}, checkpoint, "there is no folder", c::no_folder, "CHECKPOINTED: why not", a::no_folder_to_write, {}},
    {{no_job, holding}, checkpoint, "nothing of that job is held", c::not_of_its_job, "CHECKPOINTED: why not", a::nothing_to_write, {}},
    {holding, checkpoint, "", nullptr, "writes it; CHECKPOINTED then", a::write, {}},
    {holding, restore, "there is no folder", c::no_folder, "RESTORED: why not", a::no_folder_to_read, {}},
    {holding, restore, "it is not being read", c::not_being_read, "goes back to that version; reads it", a::begin_to_read, {}},
    // It was forgotten meanwhile.
    {{no_job, holding}, read, "it is of another job", c::read_of_another, "RESTORED", a::report_read, {}},
    {holding, read, "", nullptr, "KEPT; RESTORED", a::kept_and_read, {}},

    {{absent, preparing, prepared, sending, delivered, broken}, prepare, "", nullptr, "the part before ends; connects", a::connect, preparing},
    // The manager that asked first may be gone, with the answer; so below.
    {{prepared, sending, delivered}, prepare_again, "", nullptr, "PREPARED", a::prepared, {}},
    {broken, prepare_again, "", nullptr, "FAILED", a::failure_again, {}},
    {preparing, connected, "", nullptr, "PREPARED", a::prepared, prepared},
    {prepared, activate, "it lacks a layer of it", c::lacks_a_layer, "FAILED", a::refuse, {}},
    {prepared, activate, "", nullptr, "sends shards", a::send, sending},
    {sending, sent, "", nullptr, "", nullptr, delivered},
    {broken, activate, "", nullptr, "FAILED", a::failure_again, {}},
    {{preparing, prepared, sending}, broke, "", nullptr, "FAILED", a::fail, broken},
    {{preparing, prepared, sending, delivered, broken}, abort_generation, "it is that one", c::takes_part,
     "its connections end; ABORTED", a::cut_and_aborted, absent},
    // It is asked for what it holds.
    {{absent, preparing, prepared, sending, delivered, broken}, abort_generation, "", nullptr, "ABORTED", a::aborted, {}},

    {{preparing, prepared, sending, delivered, broken}, forget, "", nullptr, "its connections end", a::cut, absent},
    {holding, forget, "", nullptr, "all of it goes", a::forget, no_job},
  };
}();
// clang-format on

} // namespace parcae
