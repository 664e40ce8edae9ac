#include "runtime/view/watch_screen.hpp"

#include "protocols/base/duration.hpp"
#include "protocols/base/text.hpp"
#include "runtime/view/screen_text.hpp"
#include "runtime/view/service_text.hpp"
#include "runtime/view/status_text.hpp"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <utility>

namespace parcae {

namespace {

constexpr std::size_t caption_columns = 12;
constexpr std::size_t least_cell_columns = 8;
constexpr std::size_t more_columns = 5; // "+1234"
constexpr std::size_t least_name_columns = 8;
constexpr std::size_t max_name_columns = 24; // of one among others in a line
constexpr std::size_t least_events = 4;      // lines kept for events
constexpr std::size_t max_event_lines = 3;   // of one event
constexpr std::size_t least_grid = 4;        // lines of the grid for which the plan gives way
constexpr std::size_t scarce_rows = 20;      // below, what is left after the grid is for events
constexpr std::size_t ample_rows = 40;       // on a screen so high there is space between parts, and charts are higher
constexpr std::size_t scale_columns = 22;    // beside a sparkline
constexpr std::int64_t silence_us = 1'500'000; // several polls without an answer

using parcae::width_of; // else hidden by the next one

std::size_t width_of(const screen_line& x) {
  std::size_t result = 0;
  for (const auto& p : x)
    result += width_of(p.text);
  return result;
}

screen_line fit(screen_line x, std::size_t columns) {
  if (width_of(x) <= columns)
    return x;
  screen_line result;
  std::size_t used = 0;
  for (auto& p : x) {
    const auto width = width_of(p.text);
    // The last one that has room is cut short, also if it fits: more would follow.
    if (used + width < columns) {
      used += width;
      result.push_back(std::move(p));
      continue;
    }
    p.text.resize(bytes_of(p.text, columns - used - 1));
    p.text += "…";
    result.push_back(std::move(p));
    break;
  }
  return result;
}

piece caption(std::string_view x) {
  return {pad(std::string(x), caption_columns), look::faint};
}

/// Of one among others in a line.
std::string short_name(std::string_view x) {
  return clip_front(clean(x), max_name_columns);
}

std::string age_of_ms(double ms) {
  return text_of_age(static_cast<std::int64_t>(1000 * ms));
}

// --- the job -------------------------------------------------------------------------------------

look look_of_state(const job_status& x) {
  if (x.state == "failed")
    return look::bad;
  if (x.state == "done" || (x.state == "running" && x.phase == "running"))
    return look::good;
  return look::warning;
}

look look_of_level(const std::string& level) {
  return level == "error" ? look::bad : level == "warning" ? look::warning : look::plain;
}

screen_line title(const status_reply& x, const job_status* job, const moment& now, std::size_t columns) {
  screen_line right;
  if (const auto silent_us = now.us - x.now_us; silent_us > silence_us)
    right.push_back({"no answer for " + text_of_age(silent_us) + "  ", look::warning});
  right.push_back({time_of_day(now, now.us) + "  q: quit", look::faint});
  screen_line left;
  if (job) {
    const auto changing = job->state == "running" && job->phase != "running";
    const auto& state = changing ? job->phase : job->state;
    const auto number = fmt::format("job {} ", job->id);
    const auto others = width_of(number) + width_of(state) + width_of(right) + 4;
    const auto name = clip(clean(job->name), std::max(least_name_columns, columns - std::min(columns, others)));
    left.push_back({number + name + "  ", look::strong});
    left.push_back({state, look_of_state(*job)});
  } else {
    left.push_back({"no jobs; submit one with `parcae submit JOB.toml`", look::strong});
  }
  const auto used = width_of(left) + width_of(right);
  left.push_back({std::string(used < columns ? columns - used : 2, ' '), look::plain});
  std::ranges::move(right, std::back_inserter(left));
  return left;
}

screen_line progress_bar(const job_status& x, std::size_t columns) {
  const auto share = x.steps > 0 ? std::min(1.0, static_cast<double>(x.steps_done) / static_cast<double>(x.steps)) : 0;
  auto figures = fmt::format(" {:5.1f}%  step {}/{}", std::floor(1000 * share) / 10, x.steps_done, x.steps);
  if (x.state == "running" && x.time_left_ms >= 0)
    figures += "  " + age_of_ms(x.time_left_ms) + " left";
  const auto used = width_of(figures);
  const auto room = columns > used ? columns - used : 0;
  const auto full = static_cast<std::size_t>(share * static_cast<double>(room));
  return {{repeat("█", full), look::good}, {repeat("░", room - full), look::faint}, {figures, look::strong}};
}

screen_line figures(const job_status& x) {
  if (x.generation == 0)
    return {{clean(x.problem.empty() ? x.state : x.problem), look::warning}};
  auto text = fmt::format("generation {}", x.generation);
  if (x.width > 0 && x.kind == "serve")
    text += fmt::format("  {}×{}", x.width, x.depth);
  else if (x.width > 0)
    text += fmt::format("  {}×{}  {} samples/s  {:.1f} ms/step", x.width, x.depth, text_of_quantity(x.samples_per_s),
                        x.step_ms);
  if (x.kind != "serve")
    text += fmt::format("  learning rate {:.3g}", x.learning_rate);
  if (x.problem.empty())
    return {{text, look::plain}};
  return {{text + "  ", look::plain}, {clean(x.problem), x.state == "failed" ? look::bad : look::warning}};
}

void add_curve(std::vector<screen_line>& to, std::string_view name, const std::string& value,
               const std::vector<loss_point>& points, std::size_t columns, std::size_t height) {
  std::vector<double> values;
  for (const auto& p : points)
    values.push_back(p.loss);
  screen_line first{caption(name), {pad(value, 9), look::strong}};
  const auto used = width_of(first) + scale_columns;
  const auto lines = sparkline(values, columns > used ? columns - used : 0, height);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    auto line = i == 0 ? std::exchange(first, {}) : screen_line{{std::string(caption_columns + 9, ' '), look::plain}};
    line.push_back({lines[i], look::good});
    if (i == 0 && !values.empty())
      line.push_back(
          {fmt::format("  {:.4f} to {:.4f}", std::ranges::min(values), std::ranges::max(values)), look::faint});
    to.push_back(std::move(line));
  }
}

const instance_status* find_instance(const status_reply& x, const std::string& name, incarnation life) {
  const auto i =
      std::ranges::find_if(x.instances, [&](const auto& y) { return y.name == name && y.incarnation == life; });
  return i == x.instances.end() ? nullptr : &*i;
}

screen_line keepers(const status_reply& x, const job_status& job, std::int64_t since_us) {
  screen_line result{caption("keepers")};
  for (const auto& k : job.keepers) {
    auto text = fmt::format("{} step {}", short_name(k.keeper), k.steps);
    if (k.layers < job.layers)
      text += fmt::format(" ({} of {} layers)", k.layers, job.layers);
    auto how = look::plain;
    for (const auto& i : x.instances)
      if (i.name == k.keeper && i.state == "leaving") {
        text += " notice " + text_of_age(1000 * i.expires_in_ms - since_us);
        how = look::warning;
      }
    result.push_back({text + "  ", how});
  }
  if (job.keepers.empty())
    result.push_back({"none  ", look::warning});
  if (job.state == "running")
    result.push_back(job.protected_now ? piece{"protected", look::good} : piece{"not protected", look::warning});
  if (job.state == "running" && !job.copies_problem.empty())
    result.push_back({clean(copies_of(job)), look::warning});
  if (job.checkpoint_steps > 0)
    result.push_back({fmt::format("  checkpoint of step {}", job.checkpoint_steps), look::plain});
  for (const auto& warning : {job.not_on_disk, job.checkpoint_problem})
    if (!warning.empty())
      result.push_back({"  " + clean(warning), look::warning});
  return result;
}

std::string changes(const job_status& x) {
  auto text = std::to_string(x.change_count);
  const auto* separator = ": ";
  for (const auto& [count, kind] :
       {std::pair(x.migrations.intra_stage, "intra-stage"), std::pair(x.migrations.inter_stage, "inter-stage"),
        std::pair(x.migrations.pipeline, "pipeline"), std::pair(x.migrations.none, "in place")})
    if (count > 0)
      text += fmt::format("{}{} {}", std::exchange(separator, ", "), count, kind);
  if (x.replayed_steps > 0)
    text += "; " + counted(x.replayed_steps, "step") + " replayed";
  return text;
}

std::vector<screen_line> head_of_service(const job_status& job) {
  const auto& r = job.requests;
  std::vector<screen_line> result{
      {{fmt::format("{} running, {} queued", counted(r.running, "request"), r.queued), look::strong},
       {fmt::format("  {} tokens/s", text_of_quantity(r.tokens_per_s)), look::good}},
      figures(job)};
  for (const auto& line : service_lines(job))
    result.push_back({{clean(line), look::plain}});
  result.push_back({caption("changes"), {changes(job), look::plain}});
  return result;
}

std::vector<screen_line> head(const status_reply& x, const job_status& job, std::int64_t since_us, screen_size size) {
  const auto columns = static_cast<std::size_t>(size.columns);
  const std::size_t height = static_cast<std::size_t>(size.rows) >= ample_rows ? 3 : 1;
  if (job.kind == "serve")
    return head_of_service(job);
  std::vector<screen_line> result{progress_bar(job, columns), figures(job)};
  add_curve(result, "training", job.losses.empty() ? "-" : fmt::format("{:.4f}", job.loss), job.losses, columns,
            height);
  const bool scarce = static_cast<std::size_t>(size.rows) < scarce_rows;
  if (!scarce || job.evaluated_steps >= 0)
    add_curve(result, "validation", job.evaluated_steps < 0 ? "-" : fmt::format("{:.4f}", job.validation_loss),
              job.validation_losses, columns, height);
  result.push_back(keepers(x, job, since_us));
  result.push_back({caption("changes"), {changes(job), look::plain}});
  return result;
}

/// Why it is as it is.
std::vector<screen_line> plan(const status_reply& x, const job_status& job, std::size_t columns) {
  std::vector<screen_line> result;
  const auto room = columns - std::min(columns, caption_columns + 1);
  const auto add = [&](std::string_view name, const std::string& text, look how) {
    const auto lines = wrap(clean(text), room, 2);
    for (std::size_t i = 0; i < lines.size(); ++i)
      result.push_back({caption(i == 0 ? name : ""), {lines[i], how}});
  };
  if (!job.decisions.empty())
    add("plan", job.decisions.back().reason, look::plain);
  if (const auto market = market_text(x); !market.empty())
    add("rented", market.substr(market.find(' ') + 1), look::plain);
  if (!job.idle.empty())
    add("idle", job.idle, look::faint);
  if (const auto waits = data_wait_of(job); !waits.empty())
    add("data", waits, look::warning);
  if (const auto transport = transport_of(job); !transport.empty())
    add("moves", transport, job.transport.reason.empty() ? look::faint : look::warning);
  return result;
}

// --- the instances -------------------------------------------------------------------------------

/// One place of the grid, or an instance beside it.
struct cell {
  std::string name;
  std::string age;
  std::string mark; ///< notice or loss
  look how = look::plain;

  /// What stands behind the name.
  std::string rest(bool aged) const {
    return (age.empty() || !aged ? "" : " " + age) + (mark.empty() ? "" : " " + mark);
  }

  std::size_t width(bool aged) const { return width_of(name) + width_of(rest(aged)); }

  /// At most that wide, if the rest has room: the name is cut.
  std::string text(bool aged, std::size_t columns) const {
    const auto behind = rest(aged);
    const auto used = width_of(behind);
    return clip_front(name, columns > used ? columns - used : 1) + behind;
  }
};

cell cell_of(std::string name, const instance_status* x, const status_reply& status, std::int64_t since_us) {
  if (!x)
    return {std::move(name), "", "lost", look::bad};
  cell result{std::move(name), text_of_age(1000 * static_cast<std::int64_t>(x->age_ms) + since_us), "", look::plain};
  if (x->state == "leaving") {
    result.mark = "notice " + text_of_age(1000 * x->expires_in_ms - since_us);
    result.how = look::warning;
  } else if (x->state == "lost") {
    result.age.clear();
    result.mark = "lost " + text_of_age(status.now_us + since_us - x->lost_at_us) + " ago";
    result.how = look::bad;
  } else if (!x->warning.empty()) {
    result.mark = "at risk";
    result.how = look::warning;
  }
  return result;
}

std::vector<screen_line> grid(const status_reply& x, const job_status& job, std::int64_t since_us, std::size_t columns,
                              std::size_t max_lines) {
  std::vector<screen_line> result;
  if (job.width == 0 || max_lines < 2 || job.grid.size() != std::size_t{job.width} * job.depth ||
      job.grid_incarnations.size() != job.grid.size())
    return result;
  std::vector<cell> cells;
  for (std::size_t i = 0; i < job.grid.size(); ++i) {
    const auto name = job.grid[i].substr(0, job.grid[i].rfind('/'));
    cells.push_back(cell_of(clean(job.grid[i]), find_instance(x, name, job.grid_incarnations[i]), x, since_us));
  }
  const auto all = columns > caption_columns ? columns - caption_columns : 0;
  // Beside stages that have no room stands how many they are.
  const auto room = all / (least_cell_columns + 2) < job.depth && all > more_columns ? all - more_columns : all;
  const auto stages = std::clamp<std::size_t>(room / (least_cell_columns + 2), 1, job.depth);
  const auto most = room / stages > 2 ? room / stages - 2 : 0;
  // Long names give way to ages, short ones do not.
  const bool aged = std::ranges::all_of(cells, [&](const auto& c) {
    return std::min(width_of(c.name), least_name_columns) + width_of(c.rest(true)) <= most;
  });
  auto width = least_cell_columns;
  for (const auto& c : cells)
    width = std::max(width, c.width(aged));
  width = std::min(width, most);
  screen_line header{caption(fmt::format("{}×{}", job.width, job.depth))};
  for (std::size_t p = 0; p < stages; ++p)
    header.push_back({pad(fmt::format("stage {}", p), width + 2), look::faint});
  if (stages < job.depth)
    header.push_back({fmt::format("+{}", job.depth - stages), look::faint});
  result.push_back(std::move(header));
  const auto shown = job.width + 1 <= max_lines ? std::size_t{job.width} : max_lines - 2;
  for (std::size_t d = 0; d < shown; ++d) {
    screen_line line{caption(fmt::format("pipeline {}", d))};
    for (std::size_t p = 0; p < stages; ++p) {
      const auto& c = cells[d * job.depth + p];
      line.push_back({pad(c.text(aged, width), width) + "  ", c.how});
    }
    result.push_back(std::move(line));
  }
  if (shown < job.width)
    result.push_back({caption(""), {fmt::format("and {} pipelines more", job.width - shown), look::faint}});
  return result;
}

/// What is to be done by when, and what may come; no lines if nothing.
std::vector<screen_line> notices(const status_reply& x, std::int64_t since_us) {
  screen_line leaving{caption("leaving")}, at_risk{caption("at risk")};
  for (const auto& i : x.instances) {
    const bool leaves = i.state == "leaving";
    if (i.state == "lost" || (i.warning.empty() && i.slots_needed == 0))
      continue;
    auto text = short_name(i.name);
    if (leaves)
      text += " in " + text_of_age(1000 * i.expires_in_ms - since_us);
    if (i.slots_needed > 0)
      text += ", " + counted(i.slots_needed, "slot") + " to be moved by then";
    if (!i.warning.empty())
      text += " (" + clean(i.warning) + ")";
    auto& line = leaves ? leaving : at_risk;
    line.push_back({(line.size() > 1 ? "; " : "") + text, look::warning});
  }
  std::vector<screen_line> result;
  for (auto* line : {&leaving, &at_risk})
    if (line->size() > 1)
      result.push_back(std::move(*line));
  return result;
}

/// The workers without a place, and those that are lost.
std::vector<screen_line> others(const status_reply& x, const job_status* job, std::int64_t since_us) {
  std::set<std::pair<std::string, incarnation>> placed;
  if (job)
    for (std::size_t i = 0; i < std::min(job->grid.size(), job->grid_incarnations.size()); ++i)
      placed.emplace(job->grid[i].substr(0, job->grid[i].rfind('/')), job->grid_incarnations[i]);
  screen_line spare{caption(placed.empty() ? "workers" : "spare")}, lost{caption("lost")};
  for (const auto& i : x.instances) {
    if (i.state != "lost" && (i.role != "worker" || placed.contains({i.name, i.incarnation})))
      continue;
    const auto c = cell_of(short_name(i.name), &i, x, since_us);
    auto& line = i.state == "lost" ? lost : spare;
    line.push_back({(line.size() > 1 ? ", " : "") + c.name + c.rest(true), c.how});
  }
  if (spare.size() == 1)
    spare.push_back({placed.empty() ? "none; start some with `parcae-node`" : "none", look::faint});
  std::vector<screen_line> result{std::move(spare)};
  if (lost.size() > 1)
    result.push_back(std::move(lost));
  return result;
}

/// The newest events that have room, oldest first.
std::vector<screen_line> events(const status_reply& x, const job_status* job, const moment& now, std::size_t columns,
                                std::size_t rows) {
  const auto all = events_of(x, job);
  std::vector<std::vector<screen_line>> chosen;
  constexpr std::size_t time_columns = 10;
  for (auto i = all.rbegin(); i != all.rend() && rows > 0; ++i) {
    const auto lines = wrap(clean(i->text), columns - std::min(columns, time_columns), max_event_lines);
    if (lines.size() > rows)
      break;
    rows -= lines.size();
    std::vector<screen_line> event;
    for (std::size_t k = 0; k < lines.size(); ++k)
      event.push_back({{k == 0 ? time_of_day(now, i->at_us) + "  " : std::string(time_columns, ' '), look::faint},
                       {lines[k], look_of_level(i->level)}});
    chosen.push_back(std::move(event));
  }
  std::vector<screen_line> result;
  for (auto i = chosen.rbegin(); i != chosen.rend(); ++i)
    std::ranges::move(*i, std::back_inserter(result));
  return result;
}

} // namespace

std::vector<screen_line> render(const status_reply& x, std::uint64_t id, const moment& now, screen_size size,
                                const std::string& away) {
  const auto columns = static_cast<std::size_t>(std::max(1, size.columns));
  const auto rows = static_cast<std::size_t>(std::max(1, size.rows));
  const auto* job = find_job(x, id);
  const auto since_us = std::max<std::int64_t>(0, now.us - x.now_us);
  std::vector<screen_line> lines{title(x, job, now, columns)};
  if (!away.empty())
    lines.push_back({{clean(away), look::warning}});
  if (job)
    std::ranges::move(head(x, *job, since_us, {static_cast<int>(columns), static_cast<int>(rows)}),
                      std::back_inserter(lines));
  auto rest = notices(x, since_us);
  std::ranges::move(others(x, job, since_us), std::back_inserter(rest));
  const auto space = [&] {
    if (rows >= ample_rows)
      lines.emplace_back();
  };
  const auto kept = rest.size() + (rows < scarce_rows ? 0 : least_events);
  if (job) {
    // Where the instances are comes before why.
    const auto why = plan(x, *job, columns);
    const auto least = job->width == 0 ? 0 : std::min<std::size_t>(1 + job->width, least_grid);
    if (lines.size() + why.size() + least + kept <= rows)
      std::ranges::copy(why, std::back_inserter(lines));
    space();
    const auto used = lines.size() + kept;
    std::ranges::move(grid(x, *job, since_us, columns, rows > used ? rows - used : 0), std::back_inserter(lines));
  }
  std::ranges::copy(rest, std::back_inserter(lines));
  space();
  if (lines.size() < rows)
    std::ranges::move(events(x, job, now, columns, rows - lines.size()), std::back_inserter(lines));
  lines.resize(std::min(lines.size(), rows));
  for (auto& line : lines)
    line = fit(std::move(line), columns);
  return lines;
}

std::string to_string(const screen_line& x) {
  std::string result;
  for (const auto& p : x)
    result += p.text;
  return result;
}

} // namespace parcae
