// What the server is made of, without sockets.

#include "runtime/job/job_file.hpp"
#include "runtime/web/access.hpp"
#include "runtime/web/actions.hpp"
#include "runtime/web/board.hpp"
#include "runtime/web/facts.hpp"
#include "tests/support/client_samples.hpp"
#include "tests/support/files.hpp"
#include "tests/support/names.hpp"
#include "tests/support/thrown_by.hpp"

#include <boost/json.hpp>

#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>

namespace parcae {
namespace {

namespace json = boost::json;

/// The status that it is refused with.
template <class Function>
unsigned refused(Function f) {
  try {
    f();
    return 0;
  } catch (const web_error& e) {
    EXPECT_NE(std::string(e.what()), "");
    return e.status;
  }
}

std::string why(const std::filesystem::path& file) {
  return thrown_by([&] { read_token(file); });
}

// given: no file, the one made, and files that are none / expected: 64 digits that nobody else can read, the same
// again; one line that says what to do
TEST(token, is_made_and_read) {
  const own_folder folder;
  const auto file = folder / "token";
  const auto made = read_token(file);
  EXPECT_THAT(made, SizeIs(64));
  EXPECT_EQ(made.find_first_not_of("0123456789abcdef"), made.npos);
  struct stat what {};
  ASSERT_EQ(::stat(file.c_str(), &what), 0);
  EXPECT_EQ(what.st_mode & 0777, 0600u);
  EXPECT_EQ(read_token(file), made);
  EXPECT_NE(read_token(folder / "other"), made);

  ::chmod(file.c_str(), 0604);
  EXPECT_THAT(why(file), HasSubstr("can be read by others"));
  ::chmod(file.c_str(), 0440);
  EXPECT_EQ(read_token(file), made);
  ::chmod(file.c_str(), 0600);
  for (const auto& x : {std::string(), made.substr(1), made + "0", "g" + made.substr(1)}) {
    std::ofstream(file) << x;
    EXPECT_THAT(why(file), HasSubstr("is not a token"));
  }
  std::filesystem::create_symlink(folder / "nowhere", folder / "link");
  EXPECT_THAT(why(folder / "link"), HasSubstr("cannot be read"));
  EXPECT_FALSE(std::filesystem::exists(folder / "nowhere")) << "nothing is made behind a link";
  EXPECT_THAT(why(folder / "no/token"), HasSubstr("cannot be made"));
}

// given: targets / expected: their names and values decoded, or refused
TEST(target, is_read) {
  EXPECT_THAT(parse_web_target("/").path, IsEmpty());
  EXPECT_THAT(parse_web_target("/api/v1/jobs/3/").path, ElementsAre("api", "v1", "jobs", "3"));
  const auto x = parse_web_target("/a%20b?c=d%3De+f&g&c=h&&");
  EXPECT_THAT(x.path, ElementsAre("a b"));
  EXPECT_THAT(x.query, ElementsAre(Pair("c", "d=e f"), Pair("c", "h"), Pair("g", "")));
  EXPECT_EQ(x.value("c"), "d=e f");
  EXPECT_EQ(x.value("z"), "");
  std::string many = "/?a";
  for (int i = 0; i < 64; ++i)
    many += "&a";
  EXPECT_EQ(refused([&] { parse_web_target(many); }), 400u);
}

// given: a pace of 10 a second / expected: ten at once, then one each 100 ms, and never more than ten at once
TEST(pace, is_held) {
  pace_limit x(10);
  auto now = pace_limit::time_point(5s);
  const auto allowed = [&] {
    int result = 0;
    while (x.allows(now))
      ++result;
    return result;
  };
  EXPECT_EQ(allowed(), 10);
  now += 99ms;
  EXPECT_EQ(allowed(), 0);
  now += 102ms;
  EXPECT_EQ(allowed(), 2);
  now += 1h;
  EXPECT_EQ(allowed(), 10);
}

// given: jobs in JSON / expected: the specification that the same in TOML gives; what is no job is refused with 400
TEST(job_in_json, is_that_in_toml) {
  const auto text = toml_of(R"({"job": {"name": "a \"b\" é", "steps": 77}, "model": {"kind": "mlp", "dropout": 0.25},
    "data": {"kind": "tokens", "source": [{"path": "/a", "weight": 3}, {"path": "/b"}]}})");
  const auto x = parse_job(text, "job", {});
  EXPECT_EQ(x.name, "a \"b\" é");
  EXPECT_EQ(x.steps, 77u);
  EXPECT_EQ(x.model.dropout, 0.25);
  ASSERT_THAT(x.data.source, SizeIs(2));
  EXPECT_EQ(x.data.source[0].weight, 3u);
  for (const auto* bad : {"", "{", "[]", "1", "{\"job\": 1}", "{\"job\": {\"steps\": null}}", "{} {}"})
    EXPECT_EQ(refused([&] { toml_of(bad); }), 400u) << bad;
  const auto actions = make_web_actions({"127.0.0.1:1", ""});
  EXPECT_EQ(refused([&] { actions->check({.text = "{\"job\": {\"stops\": 1}}", .json = true}); }), 400u);
  EXPECT_EQ(refused([&] { actions->submit({.text = "steps = "}); }), 400u);
}

// --- what the manager told

event_status event(std::uint64_t number) {
  return {number, 1, "information", std::to_string(number)};
}

change_status change(std::uint64_t number, double stall_ms = -1) {
  change_status x;
  x.number = number;
  x.stall_ms = stall_ms;
  return x;
}

/// What a manager with `count` of each answers.
status_reply answer(const status_request& to, std::uint64_t count, std::uint64_t job = 3, std::int64_t now_us = 10) {
  status_reply x;
  x.manager_life = 8;
  x.now_us = x.wall_us = now_us;
  x.news_count = count;
  job_status y;
  y.id = job;
  y.detailed = true;
  y.change_count = y.event_count = count;
  for (std::uint64_t i = 0; i < count; ++i) {
    if (i >= to.news_from)
      x.news.push_back(event(i));
    if (i >= to.events_from)
      y.events.push_back(event(i));
    if (i >= to.changes_from)
      y.changes.push_back(change(i, i + 1 == count ? -1 : 5));
  }
  x.jobs.push_back(y);
  return x;
}

template <class T>
std::vector<std::uint64_t> numbers(const std::vector<T>& all) {
  std::vector<std::uint64_t> result;
  for (const auto& x : all)
    result.push_back(x.number);
  return result;
}

// given: answers that have only what is new / expected: all of it, the newest as they came last, a thousand at most;
// little is asked for again
TEST(facts, are_put_together) {
  cluster_facts x;
  EXPECT_EQ(x.next().changes_from, 0u);
  for (const std::uint64_t count : {1, 2, 40, 41, 41, 900, 2500}) {
    x.take(answer(x.next(), count));
    const auto& job = x.status().jobs.at(0);
    const auto kept = std::min<std::uint64_t>(count, cluster_facts::kept);
    for (const auto& all : {numbers(job.changes), numbers(job.events), numbers(x.status().news)}) {
      ASSERT_THAT(all, SizeIs(kept));
      for (std::uint64_t i = 0; i < kept; ++i)
        ASSERT_EQ(all[i], count - kept + i);
    }
    EXPECT_EQ(job.changes.back().stall_ms, -1);
    if (count > 1) {
      EXPECT_EQ(job.changes[kept - 2].stall_ms, 5) << "it got its figures meanwhile";
    }
    EXPECT_EQ(x.next().changes_from, count - std::min<std::uint64_t>(count, 16));
  }
}

// given: another job, another manager, one that forgot / expected: only what came; then all is asked for
TEST(facts, of_another_are_asked_anew) {
  cluster_facts x;
  x.take(answer(x.next(), 100));
  x.take(answer(x.next(), 100, 4));
  EXPECT_THAT(x.status().jobs.at(0).changes, SizeIs(16));
  EXPECT_EQ(x.next().changes_from, 0u);
  x.take(answer(x.next(), 100, 4));
  EXPECT_THAT(x.status().jobs.at(0).changes, SizeIs(100));

  auto other = answer(x.next(), 100, 4);
  other.manager_life = 9;
  x.take(other);
  EXPECT_THAT(x.status().jobs.at(0).changes, SizeIs(16)) << "not those of the other one";

  x = {};
  x.take(answer(x.next(), 100));
  x.take(answer(x.next(), 20, 3, 5));
  EXPECT_LE(x.status().news.size(), 20u);
}

// given: a manager that came back, with the jobs of its journal, and counts instances' news from 0 / expected: of the
// job nothing is missing meanwhile; all is asked for, its failures too
TEST(facts, of_one_that_came_back_are_asked_anew) {
  cluster_facts x;
  auto whole = answer(x.next(), 100);
  whole.failure_count = 3;
  x.take(whole);
  EXPECT_EQ(x.next().failures_from, 3u);
  auto back = answer(x.next(), 101);
  back.news_count = 2;
  back.news.clear();
  back.failure_count = 1;
  x.take(back);
  EXPECT_THAT(x.status().jobs.at(0).changes, SizeIs(101));
  EXPECT_EQ(x.next().news_from, 0u);
  EXPECT_EQ(x.next().failures_from, 0u);
  EXPECT_EQ(x.next().changes_from, 0u);
  x.take(answer(x.next(), 101));
  EXPECT_EQ(x.next().changes_from, 85u);
}

// given: a manager that came back: what happened to a job is microseconds later, what happened to instances has the
// number of something else / expected: only this is told
TEST(events, of_a_manager_that_came_back) {
  event_log log("life");
  auto x = sample_status();
  x.news = {event(0)};
  log.take(x, {});
  auto y = x;
  for (auto& change : y.jobs[0].changes)
    change.at_us += 3;
  for (auto& decision : y.jobs[0].decisions)
    decision.at_us += 3;
  for (auto& happened : y.jobs[0].events)
    happened.at_us += 3;
  EXPECT_THAT(log.take(y, x), IsEmpty());
  y.news[0].at_us += 3;
  EXPECT_THAT(log.take(y, x), SizeIs(1));
  y.jobs[0].changes[0].at_us += 2'000'000;
  EXPECT_THAT(log.take(y, x), SizeIs(2)) << "another change, which the journal had no time for";
}

// given: statuses one after the other / expected: an event for each that is new or another now, once, in their order;
// who comes back gets what is behind the last that it has, who has none of this log gets all
TEST(events, are_told_once) {
  web_board board("life");
  std::vector<std::string> heard;
  const auto listening = board.listen([&](const web_event& x) { heard.push_back(*x.text); });
  auto x = std::make_shared<status_reply>(sample_status());
  board.heard(x, {});
  const auto first = heard.size();
  EXPECT_THAT(heard.front(), testing::StartsWith("id: life-1\nevent: manager\ndata: {\"up\":true"));
  board.heard(x, {});
  EXPECT_THAT(heard, SizeIs(first)) << "nothing is new";

  auto y = std::make_shared<status_reply>(*x);
  y->jobs[0].changes[0].stall_ms = 13;
  y->jobs[0].steps_done = 22;
  y->jobs[0].loss = std::nan("");
  board.heard(y, {});
  ASSERT_THAT(heard, SizeIs(first + 2));
  EXPECT_THAT(heard[first], HasSubstr("event: change\n"));
  EXPECT_THAT(heard[first], HasSubstr("\"stall_ms\":1.3E1"));
  EXPECT_THAT(heard[first], HasSubstr("\"job\":3"));
  EXPECT_THAT(heard[first + 1], HasSubstr("event: step\n"));
  EXPECT_THAT(heard[first + 1], HasSubstr("\"steps\":22,\"loss\":null"));

  board.away("gone", 5);
  board.away("still gone", 6);
  ASSERT_THAT(heard, SizeIs(first + 3));
  EXPECT_THAT(heard.back(), HasSubstr(R"({"up":false,"why":"gone","since_wall_us":5})"));
  EXPECT_THAT(board.events().after("life-" + std::to_string(first)), SizeIs(3));
  EXPECT_THAT(board.events().after("life-" + std::to_string(first + 3)), IsEmpty());
  for (const auto* id : {"", "life-", "other-7", "life-x", "life-0"})
    EXPECT_THAT(board.events().after(id), SizeIs(first + 3)) << id;
}

// given: more than is kept / expected: the newest, within the bound
TEST(events, are_kept_within_a_bound) {
  event_log log("life");
  for (int i = 0; i < 3000; ++i)
    log.away(std::string(4000, 'x'), i);
  std::size_t bytes = 0;
  const auto all = log.after("");
  for (const auto& x : all)
    bytes += x.text->size();
  EXPECT_LE(bytes, event_log::max_bytes);
  EXPECT_GT(bytes, event_log::max_bytes - 5000);
  EXPECT_EQ(all.back().number, 3000u);
}

// given: a job that ended, and more of another one's steps than are kept / expected: whoever asks for all is told of
// the end, and of no job that the manager has forgotten
TEST(events, tell_how_a_job_ended) {
  event_log log("life");
  status_reply x, before;
  x.jobs.resize(2);
  x.jobs[0].id = 1;
  x.jobs[0].state = "done";
  x.jobs[1].id = 2;
  x.jobs[1].state = "running";
  const auto told_of_first = [&] {
    const auto all = log.after("");
    return std::ranges::count_if(all, [](const auto& y) { return y.job == 1 && y.text->find("done") != y.text->npos; });
  };
  for (std::size_t bytes = 0; bytes <= event_log::max_bytes + 4'000;) {
    for (const auto& y : log.take(x, before))
      bytes += y.text->size();
    before = x;
    ++x.jobs[1].steps_done;
  }
  EXPECT_GT(log.after("").front().number, 0u);
  EXPECT_EQ(told_of_first(), 1);
  EXPECT_EQ(log.after("").front().job, 1u) << "it is the oldest";
  x.jobs.erase(x.jobs.begin());
  log.take(x, before);
  EXPECT_EQ(told_of_first(), 0);
}

// given: a manager whose clock is an hour behind the last one's / expected: its points are taken; they stay in order
TEST(history, goes_on_with_an_earlier_clock) {
  web_history x;
  history_point point;
  for (const std::int64_t s : {7'200, 7'300, 3'600, 3'700}) {
    point.wall_us = s * 1'000'000;
    x.add(point);
  }
  ASSERT_EQ(x.points().size(), 2u);
  EXPECT_EQ(x.points().back().wall_us, 3'700'000'000);
}

// given: a second's points for a week, with a loss of slots in between / expected: at most as many as are kept, evenly
// over the time, the first and the newest among them; the loss is there at its second until it is thinned out
TEST(history, is_thinned) {
  web_history x;
  history_point point;
  point.slots = 4;
  for (std::int64_t i = 0; i < 7 * 86'400; ++i) {
    point.wall_us = i * 1'000'000;
    point.steps = static_cast<std::uint64_t>(i);
    x.add(point);
    ASSERT_LE(x.points().size(), web_history::max_points);
  }
  const auto& all = x.points();
  EXPECT_GE(all.size(), web_history::max_points / 2);
  EXPECT_EQ(all.front().wall_us, 0);
  const auto usual = 7 * 86'400'000'000 / static_cast<std::int64_t>(all.size());
  for (std::size_t i = 1; i < all.size(); ++i)
    ASSERT_LT(all[i].wall_us - all[i - 1].wall_us, 3 * usual);
  EXPECT_GT(all.back().wall_us, point.wall_us - 3 * usual);
  point.wall_us += 1;
  point.slots = 3;
  point.loss = std::nan("");
  x.add(point);
  EXPECT_EQ(x.points().back().slots, 3u) << "at once";
  const auto told = json::parse(x.json());
  EXPECT_EQ(told.at("slots").as_array().size(), x.points().size());
  EXPECT_TRUE(told.at("loss").as_array().back().is_null());
}

// given: a status / expected: its point
TEST(history, has_what_is_shown) {
  const auto x = point_of(sample_status());
  EXPECT_EQ(x.job, 3u);
  EXPECT_EQ(x.steps, 21u);
  EXPECT_EQ(x.loss, 2.25);
  EXPECT_EQ(x.slots, 2u);
  EXPECT_EQ(x.used, 2u);
  EXPECT_EQ(x.samples_per_s, 0) << "it is being changed";
  EXPECT_EQ(x.forecast_mean, 1.5);
}

} // namespace
} // namespace parcae
