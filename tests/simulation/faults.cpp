#include "tests/simulation/faults.hpp"

#include "protocols/wire/type_ids.hpp"

#include <caf/make_message.hpp>

#include <algorithm>
#include <map>
#include <variant>

namespace parcae::simulation {

namespace {

std::vector<std::uint32_t> layers_of(const generation_history& g, const slot_id& slot) {
  std::vector<std::uint32_t> result;
  for (std::uint32_t r = 0; r < g.grid.ranks(); ++r)
    if (g.grid.participants[r].slot == slot)
      for (auto l = g.grid.first_layer[g.grid.stage_of(r)]; l < g.grid.first_layer[g.grid.stage_of(r) + 1]; ++l)
        result.push_back(l);
  return result;
}

inventory counted_twice(const inventory& held, std::uint32_t layers) {
  std::map<version, std::set<std::uint32_t>> by_version;
  for (const auto& x : held)
    by_version[x.at].insert(x.layer);
  for (auto& [at, all] : by_version) {
    auto more = all.size();
    for (std::uint32_t layer = 0; layer < layers && more > 0; ++layer)
      more -= all.insert(layer).second;
  }
  inventory result;
  for (const auto& [at, all] : by_version)
    for (const auto layer : all)
      result.push_back({layer, at});
  std::ranges::sort(result);
  return result;
}

} // namespace

std::span<const named_fault> all_faults() {
  static constexpr named_fault all[] = {
      {"version_counted_twice", fault::version_counted_twice, 2, "no keeper ever had"},
      {"dropped_repeat", fault::dropped_repeat, 2'496, "is held by those to whom nothing happened"},
      {"early_release", fault::early_release, 2, "shards are released"},
      {"early_activate", fault::early_activate, 2, "the journal does not have it as begun"},
      {"early_decide", fault::early_decide, 2, "is told before the journal has it"},
      {"needless_abort", fault::needless_abort, 2, "nothing had happened to its ranks"},
      {"two_plans", fault::two_plans, 2, "with two plans"},
      {"activate_elsewhere", fault::activate_elsewhere, 2, "is activated at"},
      {"decide_elsewhere", fault::decide_elsewhere, 138, "is told to apply step"},
      {"confirm_ahead", fault::confirm_ahead, 2, "no keeper ever had"},
      {"another_loss", fault::another_loss, 4, "another loss is recorded"},
      {"another_evaluation", fault::another_evaluation, 14, "another validation loss is recorded"},
      {"losses_unsaid", fault::losses_unsaid, 2, "what came of"},
      {"last_losses_unsaid", fault::last_losses_unsaid, 366, "what came of"},
      {"stall_untold", fault::stall_untold, 352, "nothing new was trained"},
      {"wait_untold", fault::wait_untold, 700, "nothing new was trained"},
      {"limits_forgotten", fault::limits_forgotten, 268, "it takes longer than it may"},
      {"returns_unawaited", fault::returns_unawaited, 66, "after generation"},
      {"unfenced", fault::unfenced, 590, "leads no more"},
      {"unjournaled_entry", fault::unjournaled_entry, 4, "the journal"},
      {"unjournaled_number", fault::unjournaled_number, 2, "before its number is in the journal"},
      {"number_given_back", fault::number_given_back, 2, "numbers of generations are given back"},
      {"broken_chain", fault::broken_chain, 2, "the chain is broken"},
      {"ends_late", fault::ends_late, 4, "was never exchanged"},
      {"ends_early", fault::ends_early, 2, "is held by those to whom nothing happened"},
      {"ends_twice", fault::ends_early, 6, "and had ended at"},
      {"generation_void", fault::generation_void, 2, "all it made is held"},
      {"digest_wrong", fault::digest_wrong, 2, "not what an undisturbed run makes"},
      {"digest_lost", fault::digest_lost, 2, "not all of what it trained is known"},
      {"stale_decide", fault::stale_decide, 138, "was not trained on its steps"},
      {"open_step_dropped", fault::open_step_dropped, 2'144, ", and does not"},
      {"gradients_kept", fault::gradients_kept, 2, "says DECIDED, and step"},
      {"repeated_prepare_unanswered", fault::repeated_prepare_unanswered, 186, "does not answer command 1"},
      {"abort_unanswered", fault::abort_unanswered, 2, "does not answer command 5"},
      {"followed_ahead", fault::followed_ahead, 122, "holds other shards"},
      {"followed_kept", fault::followed_kept, 812, "which went ahead, and nobody needs it"},
      {"nothing_moved", fault::nothing_moved, 2, "is told ACTIVATE, and moves nothing"},
      {"begins_at_another_step", fault::begins_at_another_step, 2, "which is none of it"},
      {"begins_again", fault::begins_again, 6, "is to begin what it trains"},
      {"last_word_unsaid", fault::last_word_unsaid, 6, "does not say that it has stopped"},
      {"stop_unheard", fault::stop_unheard, 6, "after STOP"},
      {"snapshots_unsent", fault::snapshots_unsent, 2, "commits with a snapshot, and sends none"},
      {"snapshot_not_asked_for", fault::snapshot_not_asked_for, 12, "was asked for a snapshot"},
      {"last_version_unsent", fault::last_version_unsent, 1'462, "stops at the last version"},
      {"void_stage_kept", fault::void_stage_kept, 116, "was not trained on its steps"},
      {"void_version_said", fault::void_version_said, 86, "and does not hold it"},
      {"complete_step_unsaid", fault::complete_step_unsaid, 2, "says ABORTED, and not that step"},
      {"cut_unheard", fault::cut_unheard, 248, "does not answer command 5"},
      {"trains_when_superseded", fault::trains_when_superseded, 1'870, "has its state"},
      {"left_behind_kept", fault::left_behind_kept, 6, "which nobody needs"},
      {"part_kept_at_release", fault::part_kept_at_release, 56, "which nobody needs"},
      {"kept_when_forgotten", fault::kept_when_forgotten, 2, "of a job that is over"},
      {"silent_about_arrivals", fault::silent_about_arrivals, 2, "the job does not end"},
      {"deaf_to_newer_generations", fault::deaf_to_newer_generations, 2, "the job does not end"},
      {"delivers_nothing", fault::delivers_nothing, 2, "the job does not end"},
      {"has_nothing_when_asked", fault::has_nothing_when_asked, 2, "those to whom nothing happened"},
      {"writes_nothing", fault::writes_nothing, 2, "the job does not end"},
      {"silent_about_what_it_read", fault::silent_about_what_it_read, 272, "the job does not end"},
  };
  return all;
}

namespace {

/// What comes with a command, or in its place.
std::vector<command> spoilt(fault what, const slot_id& to, const command& x, const observed& seen) {
  const auto known = seen.generations.find(generation_of(x));
  const bool is_known = known != seen.generations.end();
  const auto other = [&](auto changed) { return std::vector<command>{changed}; };
  const auto* a = std::get_if<activate>(&x);
  if (a && is_known && what == fault::early_release)
    return {x, release{a->next, layers_of(known->second, to)}};
  if (a && what == fault::activate_elsewhere)
    return other(activate{a->next, {a->at.steps + 1, a->at.by}});
  if (const auto* p = std::get_if<prepare>(&x); p && is_known && what == fault::two_plans) {
    auto changed = *p;
    ++changed.specification.seed;
    return other(std::move(changed));
  }
  if (const auto* p = std::get_if<prepare>(&x); p && what == fault::early_activate)
    return {x, activate{p->next, {}}};
  if (const auto* b = std::get_if<abort_generation>(&x);
      b && is_known && known->second.base && what == fault::early_decide)
    return {x, decide{b->current, {}}};
  if (const auto* r = std::get_if<release>(&x); r && what == fault::needless_abort)
    return {x, abort_generation{r->current}};
  if (const auto* d = std::get_if<decide>(&x); d && d->result.step != no_step && what == fault::decide_elsewhere) {
    auto changed = *d;
    ++changed.result.step;
    return other(changed);
  }
  if (const auto* c = std::get_if<confirm>(&x); c && c->newest.steps > 0 && what == fault::confirm_ahead) {
    auto changed = *c;
    ++changed.newest.steps;
    return other(std::move(changed));
  }
  return {x};
}

} // namespace

std::vector<caf::message> faulty_messages::in_place_of(const addressee& to, const command& what,
                                                       const caf::message& message) {
  const auto g = generation_of(what);
  if (fault_ == fault::dropped_repeat && g != generation{} && !said_.emplace(to.slot, what.index(), g).second)
    return {};
  if (fault_ == fault::none)
    return {message};
  std::vector<caf::message> result;
  for (const auto& each : spoilt(fault_, to.slot, what, seen_))
    std::visit([&](const auto& x) { result.push_back(caf::make_message(to, x)); }, each);
  return result;
}

std::vector<caf::message> faulty_messages::in_place_of(const slot_id& from, const report& what,
                                                       const caf::message& message) const {
  if (const auto* k = std::get_if<kept>(&what); k && fault_ == fault::version_counted_twice) {
    auto other = *k;
    other.held = counted_twice(k->held, seen_.layers);
    return {caf::make_message(from, other)};
  }
  const bool unsaid = fault_ == fault::losses_unsaid, last_unsaid = unsaid || fault_ == fault::last_losses_unsaid;
  if (const auto* r = std::get_if<recalled>(&what);
      r && (unsaid || fault_ == fault::another_loss) && !r->losses.empty()) {
    auto block = decode_loss_block(r->losses);
    block.all.front().loss += 1;
    return {caf::make_message(from, recalled{r->job, r->from, unsaid ? std::vector<char>() : encode(block)})};
  }
  if (const auto* r = std::get_if<recalled>(&what); r && fault_ == fault::another_evaluation && !r->losses.empty()) {
    auto block = decode_loss_block(r->losses);
    for (auto& x : block.all)
      if (x.validation_loss)
        *x.validation_loss += 1;
    return {caf::make_message(from, recalled{r->job, r->from, encode(block)})};
  }
  if (const auto* s = std::get_if<stopped>(&what); s && last_unsaid) {
    auto other = *s;
    other.losses.clear();
    return {caf::make_message(from, other)};
  }
  if (const auto* a = std::get_if<aborted>(&what); a && last_unsaid) {
    auto other = *a;
    other.losses.clear();
    return {caf::make_message(from, other)};
  }
  return {message};
}

std::optional<durable_state> faulty_messages::in_place_of(durable_state what, dice& chance) const {
  auto& chain = what.chain;
  const auto& before = seen_.durable;
  const bool ended = !chain.empty() && chain.back().last != UINT64_MAX && chain.back().last > chain.back().base;
  switch (fault_) {
  case fault::unjournaled_entry:
    if (chance.percent(10))
      return {};
    break;
  case fault::unjournaled_number:
    what.reserved = before.reserved;
    break;
  case fault::number_given_back:
    what.reserved.value -= what.reserved == before.reserved && what.reserved.value > 0;
    break;
  case fault::broken_chain:
    if (chain.size() > 1)
      ++chain.back().base;
    break;
  case fault::ends_late:
    if (ended)
      ++chain.back().last;
    break;
  case fault::ends_early:
    if (ended)
      --chain.back().last;
    break;
  case fault::generation_void:
    if (chain.size() > 1 && !ended) {
      chain.back().base = chain[chain.size() - 2].base;
      chain.erase(chain.end() - 2);
    }
    break;
  case fault::digest_wrong:
    if (!what.layer_digests.empty())
      what.layer_digests.front().sha256 += "0";
    break;
  case fault::digest_lost:
    if (!what.layer_digests.empty())
      what.layer_digests.pop_back();
    break;
  default:
    break;
  }
  return what;
}

} // namespace parcae::simulation
