#include "actors/manager/journal_store.hpp"

#include "actors/manager/loss_journal.hpp"
#include "actors/manager/status.hpp"

#include <algorithm>
#include <charconv>
#include <set>
#include <stdexcept>
#include <utility>

namespace parcae {

namespace {

constexpr const char* cluster_name = "cluster";
constexpr const char* ledger_name = "ledger";
constexpr std::string_view job_prefix = "job/";

/// Of a status: some hundred changes with what was decided and said. It is written each second at most.
constexpr std::size_t max_last_bytes = 128 << 10;

std::vector<char> bytes_of(std::string_view x) {
  return {x.begin(), x.end()};
}

template <class T>
bool halve(std::vector<T>& x) {
  const auto older = x.size() - x.size() / 2;
  x.erase(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(older));
  return older > 0;
}

/// Of the longest lists. False: nothing is left of them.
bool keep_newer_half(job_status& x) {
  const bool changes = halve(x.changes), events = halve(x.events), decisions = halve(x.decisions);
  return changes || events || decisions;
}

version version_in(const journal_entry& x) {
  version result;
  const auto* end = x.bytes.data() + x.bytes.size();
  const auto [middle, problem] = std::from_chars(x.bytes.data(), end, result.steps);
  const bool has_more = problem == std::errc() && middle != end && *middle == ' ';
  const auto rest = has_more ? std::from_chars(middle + 1, end, result.by.value) : std::from_chars_result{};
  if (!has_more || rest.ec != std::errc() || rest.ptr != end)
    throw std::runtime_error("the journal has a value \"" + x.name + "\" that is no version");
  return result;
}

} // namespace

std::string name_in_journal(job_id job, const char* part) {
  return std::string(job_prefix) + std::to_string(job.value) + part;
}

journal_entry entry_of(const cluster_record& x) {
  return {cluster_name, encode(x)};
}

journal_entry entry_of(const ledger_record& x) {
  return {ledger_name, encode(x)};
}

journal_entry entry_of(job_id job, const job_record& x) {
  return {name_in_journal(job), encode(x)};
}

journal_entry entry_of(job_id job, const durable_state& x) {
  return {name_in_journal(job, memory_part), encode(x)};
}

journal_entry entry_of(job_id job, job_status x, time_point now) {
  const auto* part = x.state == to_string(job_state::running) ? history_part : last_part;
  reply all(status_reply{});
  auto& told = std::get<status_reply>(all);
  told.now_us = microseconds_of(now);
  told.wall_us = wall_clock_us();
  auto& kept = told.jobs.emplace_back(std::move(x));
  journal_entry result{name_in_journal(job, part), encode(all)};
  while (result.bytes.size() > max_last_bytes && keep_newer_half(kept))
    result.bytes = encode(all);
  return result;
}

journal_entry entry_of(job_id job, const version& reached) {
  return {name_in_journal(job, reached_part),
          bytes_of(std::to_string(reached.steps) + " " + std::to_string(reached.by.value))};
}

journal_entry processor_entry(job_id job, const std::string& processor) {
  return {name_in_journal(job, processor_part), bytes_of(processor)};
}

std::vector<journal_entry> erased(job_id job) {
  return {{name_in_journal(job), {}}, {name_in_journal(job, "/"), {}}};
}

recovered_state recovered_from(const std::vector<journal_entry>& all) {
  recovered_state result;
  std::set<job_id> recorded;
  std::map<job_id, std::vector<loss_block>> blocks;
  for (const auto& x : all) {
    if (x.name == cluster_name) {
      result.cluster = decode_journal<cluster_record>(x.bytes);
      continue;
    }
    if (x.name == ledger_name) {
      result.ledger = decode_journal<ledger_record>(x.bytes);
      continue;
    }
    job_id job;
    const auto* from = x.name.data() + std::min(x.name.size(), job_prefix.size());
    const auto* end = x.name.data() + x.name.size();
    const auto [rest, problem] = std::from_chars(from, end, job.value);
    const std::string_view part(rest, end);
    if (!x.name.starts_with(job_prefix) || problem != std::errc() || job == job_id{})
      throw std::runtime_error("the journal has a value \"" + x.name + "\", which no manager has written");
    auto& known = result.jobs[job];
    if (part.empty()) {
      known.record = decode_journal<job_record>(x.bytes);
      recorded.insert(job);
    } else if (part == memory_part) {
      known.durable = decode_journal<durable_state>(x.bytes);
    } else if (part == processor_part) {
      known.processor.assign(x.bytes.begin(), x.bytes.end());
    } else if (part == last_part || part == history_part) {
      known.last = std::get<status_reply>(decode_reply(x.bytes));
      if (known.last->jobs.size() != 1)
        throw std::runtime_error("the journal has a value \"" + x.name + "\" that is not of one job");
    } else if (part == reached_part) {
      known.reached = version_in(x);
    } else if (part.starts_with(losses_part)) {
      blocks[job].push_back(decode_loss_block(x.bytes));
    }
  }
  for (auto& [job, all] : blocks) {
    std::ranges::sort(all, {}, &loss_block::first);
    for (const auto& x : all) {
      result.jobs[job].losses.all.put(x);
      result.jobs[job].losses.pieces.push_back(x.first);
    }
  }
  std::erase_if(result.jobs, [&](const auto& x) { return !recorded.contains(x.first); });
  return result;
}

} // namespace parcae
