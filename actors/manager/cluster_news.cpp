#include "actors/manager/cluster_news.hpp"

#include "actors/manager/status.hpp"
#include "protocols/base/text.hpp"

#include <algorithm>

namespace parcae {

void cluster_news::note(time_point now, severity level, std::string text, job_id job) {
  news_.push_back({news_count_++, microseconds_of(now), name_of(level), std::move(text), job.value});
  if (news_.size() > max_news)
    news_.pop_front();
}

void cluster_news::fail(time_point now, job_id latest, report_request x, bool is_known) {
  if (x.lines.size() > max_lines)
    x.lines.erase(x.lines.begin(), x.lines.end() - max_lines);
  const auto clip = [](std::string& text) { text.resize(clipped(text, max_bytes).size()); };
  clip(x.instance);
  clip(x.what);
  std::ranges::for_each(x.lines, clip);
  std::erase_if(failures_,
                [&](const failure& f) { return f.what.instance == x.instance && (is_known || !f.is_known); });
  note(now, severity::error, "instance " + x.instance + (x.ended ? " failed: " : " reports: ") + x.what, latest);
  failures_.push_back({{failure_count_++, microseconds_of(now), std::move(x.instance), std::move(x.what),
                        std::move(x.lines), latest.value, x.ended},
                       is_known});
  if (failures_.size() <= max_failures)
    return;
  const auto unknown = std::ranges::find(failures_, false, &failure::is_known);
  failures_.erase(unknown != failures_.end() ? unknown : failures_.begin());
}

void cluster_news::add_to(status_reply& to, const status_request& wanted) const {
  to.news_count = news_count_;
  std::ranges::copy_if(news_, std::back_inserter(to.news), [&](const auto& x) { return x.number >= wanted.news_from; });
  to.failure_count = failure_count_;
  for (const auto& x : failures_)
    if (x.what.number >= wanted.failures_from)
      to.failures.push_back(x.what);
}

} // namespace parcae
