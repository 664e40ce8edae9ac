#include "actors/manager/front.hpp"
#include "actors/manager/journal_store.hpp"
#include "tests/simulation/cluster.hpp"

#include <caf/all.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

// Managers, their journal, and who leads.

namespace parcae::simulation {

namespace {

constexpr std::uint64_t manager_life = 77;
constexpr job_id the_job{1};
const auto job_entry = name_in_journal(the_job);
const auto last_entry = name_in_journal(the_job, last_part);
const auto memory_entry = name_in_journal(the_job, memory_part);

} // namespace

/// The journal's, of one life of a manager.
struct cluster::store final : journal_store {
  store(cluster& c, manager_ptr m) : all(c), owner(std::move(m)) {}

  std::vector<journal_entry> read() override {
    if (all.journal_.unread > 0) {
      --all.journal_.unread;
      throw std::runtime_error("the store cannot be read");
    }
    std::vector<journal_entry> result;
    for (const auto& [name, bytes] : all.journal_.values)
      result.push_back({name, bytes});
    return result;
  }

  void write(const std::vector<journal_entry>& entries) override {
    if (!owner->process->alive)
      throw std::runtime_error("the process is dead");
    if (owner->cut)
      throw std::runtime_error("the store cannot be reached");
    if (!all.leads(owner) && all.options_.wrong != fault::unfenced)
      throw std::runtime_error("another manager leads");
    if (owner != all.leader_)
      all.witness_.object("a manager that leads no more writes into the journal");
    const bool fails = std::ranges::any_of(entries, matters) && std::exchange(all.journal_.fails, false);
    if (!fails || all.chance().percent(50))
      for (const auto& x : entries)
        put(x);
    if (fails)
      throw std::runtime_error("an error of the store");
  }

  /// Without the others the manager goes on.
  static bool matters(const journal_entry& x) {
    return x.name != name_in_journal(the_job, history_part) && x.name != name_in_journal(the_job, reached_part) &&
           !x.name.starts_with(name_in_journal(the_job, losses_part));
  }

  void put(const journal_entry& x) {
    if (x.bytes.empty()) {
      std::erase_if(all.journal_.values, [&](const auto& y) { return erases(x, y.first); });
    } else if (x.name == memory_entry) {
      const auto now = all.faulty_.in_place_of(decode_journal<durable_state>(x.bytes), all.chance());
      if (!now)
        return;
      all.witness_.durable(*now, all.engine_.now());
      all.journal_.values[x.name] = all.options_.wrong == fault::none ? x.bytes : encode(*now);
    } else {
      all.journal_.values[x.name] = x.bytes;
      all.journal_.has_last |= x.name == last_entry;
      if (x.name == job_entry)
        all.journal_.has_ended = parcae::is_over(job_state(decode_journal<job_record>(x.bytes).state));
    }
  }

  cluster& all;
  const manager_ptr owner;
};

std::vector<std::string> cluster::places() const {
  return options_.standby ? std::vector<std::string>{"m0", "m1"} : std::vector<std::string>{"manager"};
}

void cluster::start_manager() {
  for (const auto& place : places())
    if (!managers_.contains(place))
      start_manager_at(place);
}

void cluster::start_manager_at(const std::string& place) {
  if (closed_ || managers_.contains(place)) // by harm that was arranged before
    return;
  const auto x = managers_[place] = std::make_shared<manager>();
  x->process = engine_.start_process(place);
  note("the manager starts: " + place);
  if (options_.standby)
    campaign(x);
  else
    begin_to_manage(x);
}

// As etcd_leadership does, and etcd.
void cluster::campaign(const manager_ptr& x) {
  const lead_limits limits;
  const auto now = engine_.now();
  if (x->cut || (journal_.leader != 0 && now < journal_.lease))
    return engine_.after(x->process, limits.campaign, [this, x] { campaign(x); });
  x->revision = journal_.leader = ++journal_.revision;
  journal_.lease = now + limits.lease;
  x->term.begins(now);
  renew_later(x, limits.renewal);
  begin_to_manage(x);
}

void cluster::renew(const manager_ptr& x) {
  const lead_limits limits;
  const auto now = engine_.now();
  if (x->term.left(now) <= 0ms) {
    give_back(x);
    return end_manager(x, "it stood still, or its lease could not be renewed");
  }
  if (x->cut)
    return renew_later(x, std::min(limits.renewal, x->term.left(now)));
  if (!leads(x))
    return end_manager(x, "its lease is over");
  journal_.lease = now + limits.lease;
  x->term.begins(now);
  renew_later(x, limits.renewal);
}

// Its thread need not be the first to run, least of all when the process stood still.
void cluster::renew_later(const manager_ptr& x, nanoseconds pause) {
  engine_.after(x->process, pause,
                [this, x] { engine_.after(x->process, chance().between(0ms, 300ms), [this, x] { renew(x); }); });
}

bool cluster::leads(const manager_ptr& x) const {
  return journal_.leader == x->revision && (x->revision == 0 || engine_.now() < journal_.lease);
}

void cluster::give_back(const manager_ptr& x) {
  if (leads(x) && !x->cut)
    journal_.leader = 0;
}

void cluster::begin_to_manage(const manager_ptr& x) {
  try {
    engine_.within(x->process, [&] { listen(x); });
  } catch (const std::runtime_error& e) {
    note(e.what());
    kill_manager(x);
    return engine_.after(chance().between(50ms, 2s), [this, place = x->process->name] { start_manager_at(place); });
  }
  leader_ = x;
  witness_.manager_starts();
  if (!journal_.values.contains(job_entry)) // who submitted it was not told that it is taken
    submit();
  if (cancelled_)
    ask_to_cancel();
}

// As runtime/cli/manager.cpp does it.
void cluster::listen(const manager_ptr& m) {
  auto& system = engine_.system();
  const auto kept = std::make_shared<store>(*this, m);
  auto known = recovered_from(kept->read());
  auto cluster = known.cluster.value_or(cluster_record{manager_life, {1, 2, 3, 4}, {}});
  cluster.managers.push_back(chance().number() | 1);
  kept->put(entry_of(cluster));
  m->keeping = system.spawn(journal, kept);
  registry_config x;
  x.own_threads = false;
  if (options_.feeds)
    x.conductor.feed_from = 0ms;
  if (options_.wrong == fault::limits_forgotten)
    for (auto* limit : {&x.conductor.prepare_limit, &x.conductor.transfer_limit, &x.conductor.progress_limit})
      *limit *= 1'000;
  if (options_.wrong == fault::returns_unawaited)
    x.conductor.return_limit = 0ms;
  x.manager_life = cluster.life;
  x.manager = cluster.managers.back();
  x.managers.insert(cluster.managers.begin(), cluster.managers.end());
  std::ranges::copy(cluster.secret, x.secret.words.begin());
  x.journal = m->keeping;
  x.jobs = std::move(known.jobs);
  m->registry = system.spawn(registry, std::move(x));
  const auto published = system.spawn(front, m->registry, nullptr);
  m->front = caf::actor_cast<caf::actor>(published);
  engine_.slow_down(m->keeping.address(), chance().between(1ms, chance().percent(20) ? 300ms : 10ms));
  network_.listen(m->process, caf::actor_cast<caf::strong_actor_ptr>(published), system.message_types(published));
  keep_watch_on_journal(m);
}

// The process ends with its journal.
void cluster::keep_watch_on_journal(const manager_ptr& x) {
  caf::actor_cast<caf::abstract_actor*>(x->keeping)->attach_functor([this, x](const caf::error&) {
    if (x->process->alive && !x->ending)
      engine_.after(0ns, [this, x] { end_manager(x, "the journal cannot be written"); });
  });
}

// Its actors are told to, and a second later it is gone. Whoever keeps managers running starts it again.
void cluster::end_manager(const manager_ptr& x, const std::string& why) {
  if (!x->process->alive || std::exchange(x->ending, true))
    return;
  note(x->process->name + ": " + why);
  caf::anon_send_exit(x->front, caf::exit_reason::kill);
  caf::anon_send_exit(x->registry, caf::exit_reason::user_shutdown);
  caf::anon_send_exit(x->keeping, caf::exit_reason::user_shutdown);
  engine_.after(1s, [this, x] {
    give_back(x);
    kill_manager(x);
    if (options_.standby)
      engine_.after(chance().between(50ms, 2s), [this, place = x->process->name] { start_manager_at(place); });
  });
}

void cluster::kill_manager() {
  if (has_manager())
    kill_manager(leader_);
}

void cluster::kill_manager(const manager_ptr& x) {
  if (!x->process->alive)
    return;
  note("the manager is killed: " + x->process->name);
  x->registry = nullptr;
  x->keeping = nullptr;
  x->front = nullptr;
  engine_.kill(x->process);
  network_.lose(x->process, false);
  managers_.erase(x->process->name);
}

void cluster::kill_all_managers() {
  for (const auto& [place, x] : std::map(managers_))
    kill_manager(x);
}

void cluster::freeze_manager(nanoseconds longest) {
  if (!has_manager() || manager_stands_still())
    return;
  const auto x = leader_;
  note(fmt::format("{} stands still for {} ms", x->process->name, longest / 1ms));
  engine_.freeze(x->process);
  network_.freeze(x->process);
  engine_.after(longest, [this, x] {
    if (!x->process->alive || !x->process->frozen)
      return;
    note(x->process->name + " goes on");
    engine_.thaw(x->process);
    network_.thaw(x->process);
    if (x == leader_)
      witness_.manager_goes_on();
  });
}

void cluster::cut_store(nanoseconds longest) {
  if (!options_.standby || !has_manager())
    return;
  note(fmt::format("{} does not reach its store for {} ms", leader_->process->name, longest / 1ms));
  leader_->cut = true;
  engine_.after(longest, [x = leader_] { x->cut = false; });
}

void cluster::heal_managers() {
  journal_.fails = false;
  journal_.unread = 0;
  for (const auto& [place, x] : managers_) {
    x->cut = false;
    if (!x->process->frozen)
      continue;
    engine_.thaw(x->process);
    network_.thaw(x->process);
    if (x == leader_)
      witness_.manager_goes_on();
  }
}

void cluster::submit() {
  submit_request x;
  x.job = options_.job;
  caf::anon_send(leader_->registry, client_request{encode(request{x})});
}

job_status cluster::status(status_request asked) {
  asked.job = the_job.value;
  const client_request question{encode(request{std::move(asked)})};
  const auto told = std::make_shared<std::optional<job_status>>();
  engine_.within(leader_->process, [&] {
    engine_.system().spawn([to = leader_->registry, question, told](caf::event_based_actor* self) {
      self->request(to, caf::infinite, question).then([told](const client_reply& x) {
        *told = std::get<status_reply>(decode_reply(x.bytes)).jobs.at(0);
      });
    });
  });
  engine_.run_until(engine_.now() + 10s, [&] { return told->has_value(); });
  return told->value();
}

void cluster::cancel() {
  note("the job is cancelled");
  cancelled_ = true;
  if (has_manager())
    ask_to_cancel();
}

void cluster::ask_to_cancel() {
  caf::anon_send(leader_->registry, client_request{encode(request{cancel_request{the_job.value}})});
}

bool cluster::is_over() const {
  // If the manager dies at that moment the next one says so from the conductor's last words.
  if (witness_.seen().durable.over || journal_.has_last)
    return true;
  return cancelled_ && journal_.has_ended; // before it ran
}

} // namespace parcae::simulation
