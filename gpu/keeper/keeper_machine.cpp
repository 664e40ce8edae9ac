#include "gpu/keeper/keeper_machine.hpp"

#include "protocols/base/enum_text.hpp"

#include <algorithm>
#include <array>

namespace parcae {

BOOST_DESCRIBE_ENUM(keeper_phase, no_job, holding, absent, preparing, prepared, sending, delivered, broken)

std::string to_string(keeper_phase x) {
  std::string result(enum_name(x));
  std::ranges::replace(result, '_', ' ');
  return result;
}

std::string to_string(keeper_trigger x) {
  constexpr std::array texts{"a job is named",
                             "GUARD",
                             "CONFIRM",
                             "REPLICATE",
                             "a copy has arrived there",
                             "CHECKPOINT",
                             "RESTORE",
                             "a shard arrives",
                             "no further one waits",
                             "a checkpoint was read",
                             "PREPARE",
                             "PREPARE again",
                             "all participants are connected",
                             "ACTIVATE",
                             "all was sent",
                             "it cannot connect, or send",
                             "ABORT",
                             "FORGET"};
  static_assert(texts.size() == static_cast<std::size_t>(keeper_trigger::forget) + 1,
                "a text for each trigger, in their order");
  return texts.at(static_cast<std::size_t>(x));
}

std::vector<keeper_row> keeper_machine::table() {
  return rules_of(rows);
}

void keeper_machine::on(keeper_phase& of, keeper_trigger what, payload with) {
  if (const auto* row = run_row(*this, *rules_, of, what, trigger{what, with}, observe); row && row->to)
    of = *row->to;
}

keeper_machine::effects keeper_machine::take(const keeper_command& x) {
  std::visit([&](const auto& y) { take_one(y); }, x);
  return done();
}

std::optional<std::uint32_t> keeper_machine::first_missing(const version& at) const {
  for (const auto& move : part_.plan.moves)
    if (is_source(move) && !shards_.find(move.layer, at))
      return move.layer;
  return std::nullopt;
}

void keeper_machine::serve(job_id job) {
  if (job_ == job)
    return;
  take_one(forget{job_});
  job_ = job;
  on(holding_, keeper_trigger::named);
}

void keeper_machine::take_one(const guard& x) {
  serve(x.job);
  on(holding_, keeper_trigger::guard, &x);
}

void keeper_machine::take_one(const confirm& x) {
  serve(x.job);
  on(holding_, keeper_trigger::confirm, &x);
}

void keeper_machine::take_one(const replicate& x) {
  if (x.job == job_)
    on(holding_, keeper_trigger::replicate, &x);
}

void keeper_machine::take_one(const checkpoint& x) {
  on(holding_, keeper_trigger::checkpoint, &x);
}

void keeper_machine::take_one(const restore& x) {
  serve(x.job);
  on(holding_, keeper_trigger::restore, &x);
}

void keeper_machine::take_one(const forget& x) {
  if (x.job != job_)
    return;
  on(part_.phase, keeper_trigger::forget);
  on(holding_, keeper_trigger::forget);
}

void keeper_machine::take_one(const prepare& x) {
  serve(x.job);
  if (x.next > newest_)
    on(part_.phase, keeper_trigger::prepare, &x);
  else if (takes_part_in(x.next))
    on(part_.phase, keeper_trigger::prepare_again);
}

void keeper_machine::take_one(const activate& x) {
  if (takes_part_in(x.next))
    on(part_.phase, keeper_trigger::activate, &x);
}

void keeper_machine::take_one(const abort_generation& x) {
  on(part_.phase, keeper_trigger::abort_generation, &x);
}

void keeper_machine::take_one(const recall& x) {
  const auto known = losses_.part(losses_.news_from(x.from));
  const bool has_any = x.job == job_ && !known.all.empty();
  effects_.push_back(keeper_effects::say{recalled{x.job, x.from, has_any ? encode(known) : std::vector<char>()}});
}

void keeper_machine::take_one(const remember& x) {
  if (x.job == job_)
    losses_.replace(decode_loss_block(x.losses));
}

std::vector<char> keeper_machine::losses_from(std::uint64_t step) const {
  const auto newest = losses_.steps() - std::min(losses_.steps(), loss_block_steps);
  const auto known = losses_.part(losses_.news_from(std::max(step, newest)));
  return known.all.empty() ? std::vector<char>() : encode(known);
}

keeper_machine::effects keeper_machine::connected(generation of) {
  if (takes_part_in(of))
    on(part_.phase, keeper_trigger::connected);
  return done();
}

keeper_machine::effects keeper_machine::sent(generation of) {
  if (takes_part_in(of))
    on(part_.phase, keeper_trigger::sent);
  return done();
}

keeper_machine::effects keeper_machine::broke(failed why) {
  if (takes_part_in(why.current))
    on(part_.phase, keeper_trigger::broke, &why);
  return done();
}

keeper_machine::effects keeper_machine::copied(const replicate& x) {
  on(holding_, keeper_trigger::copied, &x);
  return done();
}

keeper_machine::effects keeper_machine::arrived(job_id job, shard_store::shard_ptr shard, const commit_result& result) {
  if (job == job_ && shard->layer == losses_layer) {
    losses_.put(losses_in(*shard));
    return {};
  }
  const arrival x{std::move(shard), result};
  if (job == job_)
    on(holding_, keeper_trigger::arrived, &x);
  return done();
}

keeper_machine::effects keeper_machine::caught_up() {
  on(holding_, keeper_trigger::caught_up);
  return done();
}

keeper_machine::effects keeper_machine::read(const restored& x) {
  on(holding_, keeper_trigger::read, &x);
  return done();
}

} // namespace parcae
