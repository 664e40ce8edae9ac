#include "actors/manager/journal_store.hpp"

#include <algorithm>
#include <charconv>
#include <set>
#include <stdexcept>

namespace parcae {

namespace {

constexpr const char* cluster_name = "cluster";
constexpr std::string_view job_prefix = "job/";

std::vector<char> bytes_of(std::string_view x) {
  return {x.begin(), x.end()};
}

} // namespace

std::string name_in_journal(job_id job, const char* part) {
  return std::string(job_prefix) + std::to_string(job.value) + part;
}

journal_entry entry_of(const cluster_identity& x) {
  return {cluster_name, encode(x)};
}

journal_entry entry_of(job_id job, const job_record& x) {
  return {name_in_journal(job), encode(x)};
}

journal_entry entry_of(job_id job, const job_memory& x) {
  return {name_in_journal(job, memory_part), encode(x)};
}

journal_entry entry_of(job_id job, const job_status& x) {
  status_reply all;
  all.jobs.push_back(x);
  return {name_in_journal(job, last_part), encode(reply(std::move(all)))};
}

journal_entry processor_entry(job_id job, const std::string& processor) {
  return {name_in_journal(job, processor_part), bytes_of(processor)};
}

std::vector<journal_entry> erased(job_id job) {
  std::vector<journal_entry> result;
  for (const auto* part : {"", memory_part, processor_part, last_part})
    result.push_back({name_in_journal(job, part), {}});
  return result;
}

recovered_state recovered_from(const std::vector<journal_entry>& all) {
  recovered_state result;
  std::set<job_id> recorded;
  for (const auto& x : all) {
    if (x.name == cluster_name) {
      result.cluster = decode_journal<cluster_identity>(x.bytes);
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
      known.memory = decode_journal<job_memory>(x.bytes);
    } else if (part == processor_part) {
      known.processor.assign(x.bytes.begin(), x.bytes.end());
    } else if (part == last_part) {
      known.last = std::get<status_reply>(decode_reply(x.bytes)).jobs.at(0);
    }
  }
  std::erase_if(result.jobs, [&](const auto& x) { return !recorded.contains(x.first); });
  return result;
}

} // namespace parcae
