#include "actors/manager/status.hpp"

#include "actors/manager/job_obstacle.hpp"
#include "actors/manager/link_report.hpp"
#include "planner/situation/memory.hpp"
#include "protocols/base/digest.hpp"
#include "protocols/base/enum_text.hpp"
#include "protocols/base/text.hpp"

#include <boost/describe/bases.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <type_traits>

namespace parcae {

BOOST_DESCRIBE_ENUM(severity, information, warning, error)

namespace {

// One digest of all parameters: SHA-256 of the layers' digests, in hexadecimal and in layer order, one after the other.
std::string digest_of(const std::vector<layer_digest>& layers) {
  if (layers.empty())
    return {};
  std::string all;
  for (const auto& x : layers)
    all += x.sha256;
  return sha256_of(all);
}

severity severity_of(const std::string& level) {
  return parse_enum<severity>(level).value_or(severity::information);
}

configuration_status status_of(const configuration& x) {
  return {.width = x.width,
          .depth = x.depth,
          .predicted_samples_per_s = x.predicted_samples_per_s,
          .samples_per_s = x.samples_per_s,
          .low_samples_per_s = x.low_samples_per_s,
          .high_samples_per_s = x.high_samples_per_s,
          .measured_steps = x.measured_steps,
          .visits = x.visits,
          .measured_by_cpu = x.measured_by_cpu};
}

// What the planner knows and reckons with.
void add_planning(job_status& to, const job_view& x, const job_specification& job) {
  for (const auto& y : x.configurations)
    to.configurations.push_back(status_of(y));
  if (x.grid && !x.layer_costs.empty())
    for (const auto& [rank, bytes] : x.peak_bytes)
      to.memory.push_back({to_string(x.grid->participants.at(rank).slot), bytes,
                           memory_of(job, x.layer_costs, x.grid->first_layer, x.grid->stage_of(rank), x.grid->width,
                                     x.on_devices ? 0 : static_cast<std::uint32_t>(x.keepers.size()))
                               .total(),
                           x.reserved_bytes.at(rank)});
}

void add_place(job_status& to, const slot_id& slot) {
  to.grid.push_back(to_string(slot));
  to.grid_incarnations.push_back(slot.life);
}

void add_time_left(job_status& to, const job_view& x) {
  const auto steps_left = static_cast<double>(to.steps - std::min(to.steps, x.steps_done));
  if (!x.grid || x.now == phase::ended)
    return; // nothing runs, and nobody knows when it will
  if (x.steps_per_s > 0)
    to.time_left_ms = 1000 * steps_left / x.steps_per_s;
  else if (x.step_ms > 0)
    to.time_left_ms = steps_left * x.step_ms;
}

void add_data_waits(job_status& to, const job_view& x) {
  for (const auto& [rank, wait] : x.data_waits)
    if (x.grid && rank < x.grid->ranks() && wait.first > to.data_wait_ms) {
      to.data_wait_ms = wait.first;
      to.data_wait_for = to_string(x.grid->participants[rank].slot) + ": " + wait.second;
    }
}

// The slowest is among those told.
void add_step_times(job_status& to, const job_view& x) {
  constexpr std::size_t max_step_times = 64;
  double least = 0;
  for (const auto& [rank, times] : x.times) {
    if (!x.grid || rank >= x.grid->ranks())
      continue;
    to.step_times.push_back({times, to_string(x.grid->participants[rank].slot)});
    if (to.slowest_slot.empty() || waiting_ms(times) < least) {
      to.slowest_slot = to.step_times.back().slot;
      least = waiting_ms(times);
    }
  }
  if (auto& all = to.step_times; all.size() > max_step_times) {
    const auto slowest = std::ranges::find(all, to.slowest_slot, &slot_times::slot);
    if (slowest - all.begin() >= std::ptrdiff_t{max_step_times})
      std::swap(all[max_step_times - 1], *slowest);
    all.resize(max_step_times);
  }
}

// All ranks of a generation change over after the same step: those that have not said so yet will.
void add_transport(job_status& to, const job_view& x, const std::string& wanted) {
  std::set<std::string> devices;
  for (const auto& [rank, said] : x.transports) {
    if (!x.grid || rank >= x.grid->ranks())
      continue;
    to.transport.by = to.transport.by == "nccl" ? to.transport.by : said.by;
    devices.insert(said.device);
    if (to.transport.reason.empty() && !said.reason.empty())
      to.transport.reason = to_string(x.grid->participants[rank].slot) + ": " + said.reason;
    to.transport.peers.used |= said.peers.used;
    if (to.transport.peers.reason.empty() && !said.peers.reason.empty())
      to.transport.peers.reason = to_string(x.grid->participants[rank].slot) + ": " + said.peers.reason;
  }
  for (const auto& device : devices)
    to.transport.device += (to.transport.device.empty() ? "" : ", ") + device;
  if (x.grid)
    to.links = links_of(*x.grid, to.transport, wanted);
}

// The groups that are the conductor's.
void add_groups(job_status& to, const job_view& x) {
  boost::mp11::mp_for_each<boost::describe::describe_bases<job_status, boost::describe::mod_public>>([&](auto base) {
    using group = typename decltype(base)::type;
    if constexpr (std::is_base_of_v<group, job_view>)
      static_cast<group&>(to) = x;
  });
}

void add_view(job_status& to, const job_view& x, const job_specification& job) {
  add_groups(to, x);
  to.phase = to_string(x.now);
  to.generation = x.current.value;
  if (!x.losses.empty()) // one that goes on from a checkpoint has none before its first step
    to.loss_steps = static_cast<std::int64_t>(x.losses.back().steps);
  if (x.grid) {
    to.width = x.grid->width;
    to.depth = x.grid->depth;
    for (std::uint32_t rank = 0; rank < x.grid->ranks(); ++rank)
      add_place(to, x.grid->participants[rank].slot);
    if (x.step_ms > 0)
      to.samples_per_s = job.global_batch * 1000.0 / x.step_ms;
  }
  to.parameters_sha256 = digest_of(x.layer_digests);
  add_planning(to, x, job);
  add_time_left(to, x);
  add_data_waits(to, x);
  add_step_times(to, x);
  add_transport(to, x, job.transport);
  if (to.problem.empty())
    to.problem = x.problem;
}

} // namespace

std::string name_of(severity x) {
  return std::string(enum_name(x));
}

instance_status status_of(const instance_record& x, time_point now) {
  auto ms = [](auto duration) { return std::chrono::duration_cast<milliseconds>(duration).count(); };
  return {.name = x.facts.name,
          .incarnation = x.facts.life,
          .role = to_string(x.facts.role),
          .state = to_string(x.state),
          .slots = x.facts.slots,
          .host = x.facts.host,
          .port = x.facts.port,
          .processor = x.facts.processor,
          .age_ms = static_cast<std::uint64_t>(ms(now - x.joined)),
          .expires_in_ms = x.expires ? std::max<std::int64_t>(0, ms(*x.expires - now)) : -1,
          .lost_at_us = x.lost_at ? microseconds_of(*x.lost_at) : -1,
          .warning = x.facts.warning,
          .slots_needed = 0,
          .gpus = x.facts.gpus,
          .pool = x.facts.pool,
          .slot_bytes = x.facts.memory.bytes};
}

namespace {

// "c/0, d/0 idle: the data at /data differs from that of the others", for each reason.
std::string why_unused(const std::vector<unused_slot>& all) {
  constexpr std::size_t max_named = 3;
  std::map<std::string, std::vector<std::string>> by_reason;
  for (const auto& x : all)
    by_reason[x.why].push_back(to_string(x.where));
  std::string text;
  for (const auto& [why, slots] : by_reason) {
    text += text.empty() ? "" : "; ";
    for (std::size_t i = 0; i < std::min(slots.size(), max_named); ++i)
      text += (i == 0 ? "" : ", ") + slots[i];
    if (slots.size() > max_named)
      text += fmt::format(" and {} more", slots.size() - max_named);
    text += " idle: " + why;
  }
  return text;
}

} // namespace

std::string idle_reason(const job_specification& job, const job_status& x, const std::vector<unused_slot>& unused,
                        const std::vector<instance_status>& instances) {
  auto text = why_unused(unused);
  const auto used = x.width * x.depth;
  if (used == 0 || x.phase != "running")
    return text;
  const auto first = x.grid.front().substr(0, x.grid.front().rfind('/'));
  const auto like = std::ranges::find_if(
      instances, [&](const auto& i) { return i.name == first && i.incarnation == x.grid_incarnations.front(); });
  std::uint32_t slots = 0, others = 0;
  for (const auto& i : instances)
    if (i.role == "worker" && i.state == "alive")
      (may_use(job, like == instances.end() ? "" : like->processor, i.processor) ? slots : others) += i.slots;
  const auto accounted = used + static_cast<std::uint32_t>(unused.size());
  if (slots > accounted) {
    const auto idle = slots - accounted;
    text += (text.empty() ? "" : "; ") + counted(idle, "slot") + " idle: ";
    const auto replicas = job.serves() ? job.max_width : job.virtual_replicas;
    const auto widest = std::min(job.max_width, replicas);
    const auto deepest = x.layers > 0 ? std::min(job.max_depth, x.layers) : job.max_depth;
    if (x.width >= widest) {
      text += fmt::format(
          "{} = {} allows no more pipelines",
          !job.serves() && replicas <= job.max_width ? "parallel.virtual_replicas" : "parallel.max_width", widest);
      text += x.depth >= deepest ? ", nor can there be more stages" : ", and more stages promise less";
    } else if (idle < x.depth) {
      text += fmt::format("too few for another pipeline of {}", counted(x.depth, "stage"));
    } else {
      text +=
          job.serves() ? "requests are answered as soon without them" : "the plan promises more samples without them";
    }
  }
  if (others > 0)
    text += (text.empty() ? "" : "; ") + counted(others, "slot") + " idle: another processor" +
            (job.model.kind == "plugin" ? " or plug-in" : "") + " would compute other bits";
  return text;
}

std::string why_not_on_disk(const job_specification& job, const job_view& x, time_point now) {
  constexpr auto least = std::chrono::minutes(1); // a disk takes its time
  const std::chrono::milliseconds every(job.checkpoint_every_ms);
  if (x.checkpoint != version{} || x.changes.empty() || job.serves())
    return {};
  if (job.checkpoint_every == 0 && every.count() == 0)
    return "nothing is on disk before the job ends: job.checkpoint_every is 0";
  const auto trained = std::chrono::microseconds(microseconds_of(now) - x.changes.front().at_us);
  if (trained < least)
    return {};
  if (job.checkpoint_every > 0 && x.steps_done >= 2 * job.checkpoint_every)
    return fmt::format("no checkpoint is on disk, though one was due at step {}", job.checkpoint_every);
  if (every.count() > 0 && trained >= 2 * every)
    return "no checkpoint is on disk, though one was due after " + text_of_duration(every);
  return {};
}

job_status status_of(job_id id, const job_entry& x, const job_picture& picture, const status_request& wanted) {
  const auto& job = x.specification;
  job_status result;
  static_cast<submission_status&>(result) = {.id = id.value,
                                             .name = job.name,
                                             .state = to_string(x.state),
                                             .problem = x.why,
                                             .priority = x.priority,
                                             .owner = x.owner,
                                             .resumed_from = job.resume.folder,
                                             .steps = job.steps,
                                             .global_batch = job.global_batch,
                                             .planning_interval_ms = job.planning_interval_ms,
                                             .min_instances = job.min_instances,
                                             .gradient_sums = job.gradient_sums,
                                             .kind = job.kind};
  if (picture.view)
    add_view(result, *picture.view, job);
  if (picture.events) {
    result.event_count = picture.first_event;
    for (const auto& event : *picture.events)
      result.events.push_back(
          {result.event_count++, microseconds_of(event.at), name_of(event.level), event.text, id.value});
  }
  return part_of(std::move(result), wanted);
}

std::int64_t wall_clock_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

job_status on_this_clock(const status_reply& kept, time_point now, std::int64_t wall_us) {
  auto result = kept.jobs.at(0);
  if (kept.wall_us == 0)
    return result; // of a build that did not tell
  const auto later_us = microseconds_of(now) - wall_us - (kept.now_us - kept.wall_us);
  const auto move = [&](auto& all) {
    for (auto& x : all)
      x.at_us += later_us;
  };
  move(result.changes);
  move(result.decisions);
  move(result.events);
  return result;
}

known_job known_from(const durable_state& durable, const version& reached, const job_status& last) {
  known_job result{.durable = durable,
                   .past = {last, last, reached},
                   .first_event = last.event_count - last.events.size(),
                   .events = {}};
  for (const auto& x : last.events)
    result.events.push_back({time_point(std::chrono::microseconds(x.at_us)), severity_of(x.level), x.text});
  return result;
}

job_status status_of(job_id id, const job_entry& x, const durable_state& durable, const job_status& last) {
  const auto known = known_from(durable, {}, last);
  job_view view;
  static_cast<history_status&>(view) = last;
  view.replayed_steps = durable.replayed_steps;
  view.chain = durable.chain;
  static_cast<training_status&>(view) = last;
  view.steps_done = 0;
  if (!durable.chain.empty() && durable.chain.back().last != UINT64_MAX)
    view.steps_done = durable.chain.back().last;
  if (durable.result.step != no_step)
    tell_of(view, durable.result);
  static_cast<checkpoint_view&>(view) = checkpoint_of(durable);
  view.now = phase::ended;
  view.current = durable.last;
  view.layer_digests = durable.layer_digests;
  job_picture picture;
  picture.view = std::make_shared<job_view>(std::move(view));
  picture.first_event = known.first_event;
  picture.events = std::make_shared<std::deque<logged_event>>(known.events);
  return status_of(id, x, picture, {});
}

job_status part_of(job_status x, const status_request& wanted) {
  std::erase_if(x.changes, [&](const auto& y) { return y.number < wanted.changes_from; });
  std::erase_if(x.decisions, [&](const auto& y) { return y.number < wanted.decisions_from; });
  std::erase_if(x.events, [&](const auto& y) { return y.number < wanted.events_from; });
  for (auto* losses : {&x.losses, &x.validation_losses})
    std::erase_if(*losses, [&](const auto& y) { return y.steps < wanted.losses_from; });
  return x;
}

} // namespace parcae
