#include "protocols/client/pages.hpp"

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

namespace parcae {

namespace {

void leave_out_details(job_status& x) {
  x.detailed = false;
  x.changes.clear();
  x.chain.clear();
  x.events.clear();
  x.decisions.clear();
  x.losses.clear();
  x.validation_losses.clear();
  x.configurations.clear();
  x.layer_costs.clear();
  x.memory.clear();
  x.step_times.clear();
  x.steps_by_depth.clear();
}

template <class T>
void halve(std::vector<T>& x) {
  x.resize(x.size() / 2);
}

template <class T>
void append(std::vector<T>& to, std::vector<T>& from) {
  to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

} // namespace

std::vector<char> page_of(status_reply all, const status_request& asked, std::size_t limit) {
  reply told(std::move(all));
  auto& x = std::get<status_reply>(told);
  std::erase_if(x.jobs, [&](const auto& j) { return j.id <= asked.after_job; });
  std::erase_if(x.instances, [&](const auto& i) {
    return std::tie(i.name, i.incarnation.value) <= std::tie(asked.after_instance, asked.after_life);
  });
  bool brief = false;
  for (;;) {
    auto result = encode(told);
    if (result.size() <= limit)
      return result;
    if (x.instances.size() > 1 || (!x.instances.empty() && !x.jobs.empty())) {
      halve(x.instances);
      x.more = true;
    } else if (x.jobs.size() > 1) {
      halve(x.jobs);
      x.more = true;
    } else if (!x.jobs.empty() && !std::exchange(brief, true)) {
      leave_out_details(x.jobs.front());
    } else {
      return result; // one instance, and what is bounded
    }
  }
}

std::optional<status_request> rest_of(status_request asked, const status_reply& page) {
  if (!page.more || (page.jobs.empty() && page.instances.empty()))
    return std::nullopt;
  asked.news_from = asked.failures_from = UINT64_MAX;
  if (!page.jobs.empty())
    asked.after_job = page.jobs.back().id;
  if (!page.instances.empty()) {
    asked.after_instance = page.instances.back().name;
    asked.after_life = page.instances.back().incarnation.value;
  }
  return asked;
}

void add_page(status_reply& to, status_reply page) {
  append(to.jobs, page.jobs);
  append(to.instances, page.instances);
  to.more = page.more;
}

} // namespace parcae
