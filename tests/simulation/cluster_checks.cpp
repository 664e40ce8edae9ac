#include "actors/manager/journal_store.hpp"
#include "tests/simulation/cluster.hpp"

#include <caf/actor_registry.hpp>

#include <fmt/format.h>

// What is seen of what is sent, and of what is left.

namespace parcae::simulation {

namespace {

template <class First, class... Ts, class Function>
bool visit_message(const caf::message& x, std::type_identity<std::variant<Ts...>>, Function f) {
  if (x.size() != 2 || !x.match_element<First>(0))
    return false;
  return ((x.match_element<Ts>(1) && (f(x.get_as<First>(0), x.get_as<Ts>(1)), true)) || ...);
}

std::string details_of(const report& x) {
  if (const auto* r = std::get_if<restored>(&x))
    return " of " + to_string(r->at) + ": " + r->problem;
  std::string result;
  if (const auto* k = std::get_if<kept>(&x))
    for (const auto& held : k->held)
      result += fmt::format(" {}:{}", held.layer, to_string(held.at));
  return result;
}

/// `may_lack_last`: the evaluation of the last version.
std::string problem_of(const loss_record& known, std::uint64_t steps, const job_specification& job,
                       bool may_lack_last = false) {
  if (known.steps() != steps)
    return fmt::format("what came of {} steps is recorded, of {}", known.steps(), steps);
  for (std::uint64_t step = 0; step < known.steps(); ++step) {
    const auto* x = known.find(step);
    if (!x)
      return fmt::format("what came of step {} is not recorded", step);
    if (x->loss != loss_of(step))
      return fmt::format("of step {} another loss is recorded", step);
    const auto evaluated = x->validation_loss;
    const bool is_due = job.evaluate_every > 0 && ((step + 1) % job.evaluate_every == 0 || step + 1 == job.steps);
    if (evaluated.has_value() != is_due && !(may_lack_last && step + 1 == steps))
      return fmt::format("the evaluation of version {} is {}recorded", step + 1, evaluated ? "" : "not ");
    if (evaluated && *evaluated != validation_loss_of(step + 1))
      return fmt::format("of version {} another validation loss is recorded", step + 1);
  }
  return {};
}

} // namespace

std::vector<caf::message> cluster::pass(const connection& c, int to, const caf::message& x) {
  if (has_manager() && !manager_stands_still())
    witness_.look_for_end_of_change(engine_.now());
  std::vector<caf::message> result{x};
  const auto count = [&](std::size_t kind, generation g) {
    digest_ = trained_bits(digest_, static_cast<std::uint32_t>(kind),
                           static_cast<std::uint64_t>(engine_.now().time_since_epoch().count()) ^ (g.value << 48));
  };
  if (to == 0) {
    visit_message<addressee>(x, std::type_identity<command>{}, [&](const addressee& whom, const auto& what) {
      const command it(what);
      count(it.index(), generation_of(it));
      lose_if_next(whom.slot, true, it.index());
      result = faulty_.in_place_of(whom, it, x);
    });
    for (const auto& each : result)
      visit_message<addressee>(each, std::type_identity<command>{}, [&](const addressee& whom, const auto& what) {
        if (!is_stale(c)) // it does not know what the journal has; what comes of it is seen
          witness_.told(whom.slot, what, engine_.now());
        if (options_.tells)
          note(fmt::format("  {} is told {} of {}", to_string(whom.slot), command(what).index(),
                           generation_of(command(what)).value));
      });
  } else {
    visit_message<slot_id>(x, std::type_identity<report>{}, [&](const slot_id& from, const auto& what) {
      const report it(what);
      if (options_.tells)
        note(fmt::format("  {} says {}{}", to_string(from), it.index(), details_of(it)));
      count(100 + it.index(), {});
      lose_if_next(from, false, it.index());
      result = faulty_.in_place_of(from, it, x);
    });
  }
  return result;
}

void cluster::hear(const connection& c, int to, const caf::message& x) {
  if (to != 0 && !is_stale(c))
    visit_message<slot_id>(x, std::type_identity<report>{},
                           [&](const slot_id& from, const auto& what) { witness_.heard(from, what, engine_.now()); });
}

// Each committed step is recorded once, with its result, by the manager and beside the final checkpoint.
void cluster::look_at_losses() {
  std::vector<journal_entry> all;
  for (const auto& [name, bytes] : journal_.values)
    all.push_back({name, bytes});
  const auto jobs = recovered_from(all).jobs;
  const auto& durable = witness_.seen().durable;
  if (!durable.good)
    return;
  const auto& last = durable.chain.back();
  const auto steps = last.last;
  witness_.object(problem_of(jobs.contains({1}) ? jobs.at({1}).losses.all : loss_record(), steps, options_.job));
  // What is written at once, as who has it goes or who evaluates it is gone, may lack that.
  const auto& made_last = witness_.seen().generations.at(last.by);
  const bool may_lack_last = keeper_was_leaving_ || last.base == steps || made_last.broken_off;
  for (const auto& [keeper, folder] : durable.checkpoint_folders) {
    const auto& on_disk = disk_of(keeper.instance)->folders;
    const auto known = on_disk.find(durable.checkpoint_name);
    if (known == on_disk.end())
      witness_.object(folder + " is not there");
    else if (const auto what = problem_of(known->second.losses, steps, options_.job, may_lack_last); !what.empty())
      witness_.object(what + " in " + folder);
  }
}

// Stalls, waiting for state and steps done again are the time in which nothing new was trained.
void cluster::look_at_account() {
  if (!has_manager() || options_.job.serves())
    return;
  const auto longest_step = 3 * options_.data.step + 5 * options_.wake; // with an evaluation
  for (auto x : status().changes) {
    if (options_.wrong == fault::wait_untold)
      x.state_wait_ms = -1;
    if (options_.wrong == fault::stall_untold)
      x.stall_ms = 0;
    witness_.look_at_account(x, longest_step, 600ms + options_.network.most);
  }
}

void cluster::look_for_leaks() {
  look_at_losses();
  look_at_account();
  witness_.look_for_answers(engine_.now());
  if (const auto open = plane_.trained(); open > 0)
    witness_.object(fmt::format("{} generations have connections after the job's end", open));
  for (const auto& [slot, held] : witness_.seen().held) // keepers are not told again what is over
    if (!held.empty() && !keeper_names_.contains(slot.instance))
      witness_.object(to_string(slot) + " holds state after the job's end");
  // Each actor has a few timers, of which none is cancelled.
  const auto actors = engine_.system().registry().running();
  if (engine_.timers() > 40 * actors + 400)
    witness_.object(fmt::format("{} timers for {} actors", engine_.timers(), actors));
  kill_all_managers();
  closed_ = true;
  for (const auto& [name, x] : std::map(nodes_))
    end_node(x, false);
  engine_.run_until(engine_.now() + 10s, [] { return false; });
  if (executors_ != 0)
    witness_.object(fmt::format("{} executors are left", executors_));
  if (network_.connections() != 0)
    witness_.object(fmt::format("{} connections are left", network_.connections()));
  if (const auto left = engine_.system().registry().running(); left != 0)
    witness_.object(fmt::format("{} actors are left", left));
}

} // namespace parcae::simulation
