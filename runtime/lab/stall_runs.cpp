#include "runtime/lab/stall_runs.hpp"

#include "protocols/base/enum_text.hpp"
#include "runtime/lab/profile_run.hpp"
#include "runtime/process/whole_trace.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <system_error>
#include <thread>
#include <utility>

namespace parcae {

namespace {

namespace fs = std::filesystem;
using clock = std::chrono::steady_clock;

constexpr std::chrono::minutes run_limit{10};
constexpr std::pair<std::uint32_t, std::uint32_t> shapes[] = {{1, 1}, {2, 1}, {1, 2}, {2, 2}};
constexpr std::uint32_t max_slots = 4; // of these shapes
constexpr std::uint64_t warm_up_steps = 5;
constexpr double least_steps = 10; // of a run, however long they take

double elapsed_ms(clock::time_point from) {
  return std::chrono::duration<double, std::milli>(clock::now() - from).count();
}

/// All that a job reads of this machine; of a folder at most that number of files.
std::vector<fs::path> files_of(const data_specification& data) {
  constexpr std::size_t most = 100'000;
  std::vector<fs::path> result, roots{data.path};
  for (const auto& x : data.source)
    roots.emplace_back(x.path);
  for (const auto& root : roots) {
    std::error_code failure;
    if (fs::is_regular_file(root, failure))
      result.push_back(root);
    for (fs::recursive_directory_iterator i(root, failure), end; !failure && i != end && result.size() < most;
         i.increment(failure))
      if (i->is_regular_file(failure))
        result.push_back(i->path());
  }
  return result;
}

bool is_local(const data_specification& data) {
  return std::ranges::none_of(data.source, [](const auto& x) { return x.path.find("://") != std::string::npos; }) &&
         data.path.find("://") == std::string::npos;
}

/// As long as it lives, the kernel forgets files as soon as they were read.
class cold_files {
public:
  explicit cold_files(std::vector<fs::path> files) :
      files_(std::move(files)), thread_([this](const std::stop_token& end) { run(end); }) {}

private:
  void run(const std::stop_token& end) const {
    constexpr std::chrono::milliseconds least_pause{20};
    constexpr int share = 9; // of the time, to those who train
    while (!end.stop_requested()) {
      const auto began = clock::now();
      for (auto i = files_.begin(); i != files_.end() && !end.stop_requested(); ++i) {
        const int file = ::open(i->c_str(), O_RDONLY | O_CLOEXEC);
        if (file < 0)
          continue; // who reads it says so
        ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
        ::close(file);
      }
      std::this_thread::sleep_for(std::max<clock::duration>(least_pause, share * (clock::now() - began)));
    }
  }

  const std::vector<fs::path> files_;
  std::jthread thread_; ///< last: it uses the files
};

/// Those that the job can have, and in `remarks` why not the others.
std::vector<sample_origin> sources_of(const job_specification& job, std::vector<std::string>& remarks) {
  std::vector<sample_origin> result;
  try {
    stall_job(job, 1, 1, sample_origin::made_up);
    result.push_back(sample_origin::made_up);
  } catch (const std::invalid_argument& e) {
    remarks.push_back(std::string("samples cannot be made up for this model, so cached ones take their place: ") +
                      e.what());
  }
  if (job.data.kind == "synthetic") {
    remarks.emplace_back("the job's samples are made up: there is nothing to read, cached or cold");
    return result;
  }
  result.push_back(sample_origin::cached);
  if (is_local(job.data))
    result.push_back(sample_origin::cold);
  else
    remarks.emplace_back("data of a URL is copied before the first step: it is never cold");
  return result;
}

} // namespace

job_specification stall_job(job_specification job, std::uint32_t width, std::uint32_t depth, sample_origin samples) {
  const auto slots = width * depth;
  job = endless_job_of(std::move(job), width, depth);
  job.min_width = width;
  job.min_depth = depth;
  job.min_instances = slots;
  job.global_batch *= slots;
  if (job.virtual_replicas < width)
    job.virtual_replicas *= width;
  if (samples == sample_origin::made_up && job.data.kind != "synthetic")
    job.data = {.kind = "synthetic"};
  if (const auto problem = problem_of(job); !problem.empty())
    throw std::invalid_argument(problem);
  return job;
}

stall_cluster::stall_cluster(stall_place place, std::uint32_t workers) :
    place_(std::move(place)), logs_("parcae-stalls"), cluster_(sibling_program(""), logs_.path(), place_.ground) {
  auto arguments = place_.arguments;
  cluster_.start_keeper("keeper", arguments);
  for (std::uint32_t i = 0; i < workers; ++i)
    cluster_.start_node("n" + std::to_string(i), arguments);
  cluster_.wait_for("the nodes", run_limit,
                    [&](const status_reply& x) { return living(x, "worker") == workers && living(x, "keeper") == 1; });
}

job_status stall_cluster::wait_for(const std::string& what, const std::function<bool(const job_status&)>& condition) {
  const auto x = cluster_.wait_for(what, run_limit,
                                   [&](const status_reply& reply) {
                                     const auto& job = job_of(reply, id_);
                                     if (job.state == "failed" || job.state == "done")
                                       throw cluster_error("the job ended (" + job.state + "): " + job.problem);
                                     if (job.problem.find("fits their memory") != std::string::npos)
                                       throw cluster_error("the job cannot be measured here: " + job.problem);
                                     return condition(job);
                                   },
                                   {.job = id_, .events_from = UINT64_MAX});
  return job_of(x, id_);
}

std::uint64_t stall_cluster::next_news() {
  std::optional<std::uint64_t> heard;
  return wait_for("steps",
                  [&](const job_status& x) {
                    if (!heard)
                      heard = x.steps_done;
                    return x.steps_done > *heard;
                  })
      .steps_done;
}

void stall_cluster::add_traces(stall_run& to, std::chrono::milliseconds duration, double step_ms) {
  std::map<std::uint32_t, std::pair<step_parts, double>> by_rank; // sums, and of how many steps
  bool is_cut = false;
  const auto began = clock::now();
  do {
    const double left_ms = static_cast<double>(duration.count()) - elapsed_ms(began);
    const auto steps = std::clamp(left_ms / step_ms, least_steps, double{max_traced_steps});
    const auto told = whole_trace(cluster_.client(), id_, static_cast<std::uint32_t>(steps));
    for (const auto& trace : told.traces) {
      is_cut |= trace.is_cut;
      if (trace.is_cut)
        continue;
      auto& [sums, count] = by_rank[trace.rank];
      for (const auto& span : trace.spans)
        sums.*members_of_step_parts[static_cast<std::size_t>(span.part)] += static_cast<double>(span.ns) / 1e6;
      ++count;
      step_ms = total_ms(sums) / count;
      to.traced += trace.rank == 0 ? 1 : 0;
    }
  } while (elapsed_ms(began) < static_cast<double>(duration.count()));
  if (by_rank.size() != to.width * to.depth)
    throw cluster_error(is_cut ? "steps have too many micro-batches to be told part by part; raise batch.micro"
                               : "not all slots told where the time of their steps goes");
  step_parts mean;
  for (const auto& [rank, told] : by_rank)
    for (const auto member : members_of_step_parts)
      mean.*member += told.first.*member / told.second / static_cast<double>(by_rank.size());
  to.causes = causes_of(mean);
}

stall_run stall_cluster::measure(const job_specification& job, std::uint32_t width, std::uint32_t depth,
                                 sample_origin samples, std::chrono::milliseconds duration) {
  std::optional<cold_files> cold;
  if (samples == sample_origin::cold)
    cold.emplace(files_of(job.data));
  id_ = cluster_.client().submit(stall_job(job, width, depth, samples));
  wait_for("a step", [](const job_status& x) { return x.steps_done > 0; });
  const auto begun = clock::now(); // the first ones take longer
  const auto warm = wait_for("steps", [&](const job_status& x) {
    return x.steps_done >= warm_up_steps && clock::now() - begun > duration / 5 && !x.layer_costs.empty() &&
           x.step_ms > 0;
  });
  stall_run result;
  result.width = width;
  result.depth = depth;
  result.samples = samples;
  result.over_hosts = place_.over_hosts;
  for (const auto& layer : warm.layer_costs)
    result.gradient_bytes += layer.gradient_bytes;
  const auto before = next_news();
  const auto from = clock::now();
  add_traces(result, duration, warm.step_ms);
  result.steps = next_news() - before;
  result.step_ms = elapsed_ms(from) / static_cast<double>(result.steps);
  cluster_.client().cancel(id_);
  const auto is_over = [&](const status_reply& x) {
    const auto& state = job_of(x, id_).state;
    return state != "running" && state != "queued";
  };
  cluster_.wait_for("the job's end", run_limit, is_over);
  return result;
}

stall_measurements measure_stalls(const job_specification& job, const stall_options& options,
                                  const std::function<void(const std::string&)>& show) {
  stall_measurements result;
  result.job = job.name;
  result.link_bytes_per_s = static_cast<double>(options.link_bytes_per_s);
  const auto sources = sources_of(job, result.remarks);
  for (const auto& [width, depth] : shapes)
    stall_job(job, width, depth, sources.front()); // said before anything is measured
  const auto measure = [&](stall_cluster& on, std::uint32_t width, std::uint32_t depth, sample_origin samples,
                           const char* where) {
    show(std::to_string(width) + "×" + std::to_string(depth) + where + ", samples " +
         (samples == sample_origin::made_up ? "made up" : std::string(enum_name(samples))));
    result.runs.push_back(on.measure(job, width, depth, samples, options.duration));
  };
  const std::vector<std::string> device{"--device", options.device};
  {
    stall_cluster host({.ground = {}, .arguments = device}, max_slots);
    for (const auto samples : sources)
      for (const auto& [width, depth] : shapes)
        measure(host, width, depth, samples, " on one host");
  }
  if (options.link_bytes_per_s == 0)
    return result;
  auto behind_links = device;
  behind_links.insert(behind_links.end(),
                      {"--link", std::to_string(static_cast<double>(options.link_bytes_per_s) / 1000) + "kB/s"});
  stall_cluster hosts({.over_hosts = true, .ground = {}, .arguments = behind_links}, max_slots);
  for (const auto& [width, depth] : shapes)
    if (width * depth > 1)
      measure(hosts, width, depth, sources.front(), " as if over hosts");
  return result;
}

} // namespace parcae
