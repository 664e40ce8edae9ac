// What `parcae web` costs with 50 viewers, and what it costs the manager.
//   a day     the board and server in this process, told 86,400 times a second's news of a job on 1,000 slots, with 50
//             readers of events: memory, and the processor's time for a second
//   a minute  `parcae web` before a real manager with 1,000 nodes, and 50 pages that ask what the page asks: its
//             processor's time; and the manager's, over that of answering a client one `status` a second, by turns
// Prints figures; fails if one is beyond its bound.

#include "runtime/child/process.hpp"
#include "runtime/lab/local_cluster.hpp"
#include "runtime/web/facts.hpp"
#include "runtime/web/server.hpp"
#include "tests/bench/figures.hpp"
#include "tests/bench/measure.hpp"
#include "tests/support/client_samples.hpp"
#include "tests/support/crowd.hpp"
#include "tests/support/web_client.hpp"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>

#include <poll.h>
#include <pthread.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <fstream>
#include <functional>
#include <future>
#include <thread>

using namespace parcae;

namespace {

using namespace std::chrono_literals;

constexpr int viewers = 50, slots = 1'000, day_s = 86'400;
constexpr double max_told = 0.001;     // of a core
constexpr double max_asked = 0.015;    // of a core: 50 viewers may cost a tenth of one
constexpr double max_mib = 60;         // of memory; 200 would be much
constexpr double max_of_status = 1.15; // of the manager's time with one status a second

/// Of the processor, by a process so far.
double used_by(pid_t process) {
  clockid_t clock{};
  if (clock_getcpuclockid(process, &clock) != 0)
    throw std::runtime_error("a process has ended");
  return clock_ms(clock) / 1e3;
}

double resident_mib(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/status");
  for (std::string word; file >> word;)
    if (word == "VmRSS:") {
      double kib = 0;
      file >> kib;
      return kib / 1024;
    }
  throw std::runtime_error("a process has ended");
}

/// An address may have eight connections.
std::string address_of(int viewer) {
  return "127.0.0." + std::to_string(2 + viewer / 4);
}

// --- a day

/// What a manager would tell, second by second, of a job that trains on 1,000 slots.
class told_day {
public:
  told_day() {
    now_.manager_life = 1;
    for (int i = 0; i < slots; ++i)
      now_.instances.push_back({hello_writer::name_of(i), incarnation{static_cast<std::uint64_t>(i + 1)}, "worker",
                                "alive", 1, "10.0.0.1", 4000, "cpu", 5000, -1, -1});
    auto& job = now_.jobs.emplace_back(sample_job_status());
    job.phase = "running";
    job.detailed = true;
    job.steps = 10'000'000;
    job.width = 40;
    job.depth = 25;
    for (const auto& x : now_.instances) {
      job.grid.push_back(x.name + "/0");
      job.grid_incarnations.push_back(x.incarnation);
    }
  }

  /// The answer to the next question: only what is new. An instance is lost and a change made each minute.
  status_reply second(int s) {
    now_.now_us = 1'000'000LL * (s + 1);
    now_.wall_us = 1'700'000'000'000'000LL + now_.now_us;
    auto& job = now_.jobs.front();
    job.steps_done = 2 * static_cast<std::uint64_t>(s) + 1;
    job.loss_steps = static_cast<std::int64_t>(job.steps_done);
    job.loss = 5.0 / (1 + s);
    now_.news.clear();
    job.changes.clear();
    job.events.clear();
    if (s % 60 == 0) {
      now_.news.push_back({now_.news_count++, now_.now_us, "warning", "instance n0007 was lost: its connection ended"});
      job.events.push_back({job.event_count++, now_.now_us, "information", "generation goes on at 39×25", job.id});
      auto& change = job.changes.emplace_back(sample_job_status().changes.front());
      change.number = job.change_count++;
      change.at_us = now_.now_us;
    }
    return now_;
  }

private:
  status_reply now_;
};

class no_actions : public web_actions {
  [[noreturn]] static void refuse() { throw web_error(503, "there is no manager"); }

public:
  boost::json::value submit(const submission&) override { refuse(); }
  boost::json::value check(const submission&) override { refuse(); }
  boost::json::value cancel(std::uint64_t) override { refuse(); }
  boost::json::value checkpoint(std::uint64_t) override { refuse(); }
  boost::json::value preempt(const preemption&) override { refuse(); }
  std::string status(std::uint64_t) override { refuse(); }
  std::string curve(std::uint64_t, std::uint64_t) override { refuse(); }
  std::string losses(std::uint64_t, std::uint64_t) override { refuse(); }
  std::string checkpoints() override { refuse(); }
  std::shared_ptr<const web_file> parameters(std::uint64_t, bool) override { refuse(); }
};

/// 50 connections that read events, emptied by a thread.
class readers {
public:
  explicit readers(std::uint16_t port) {
    for (int i = 0; i < viewers; ++i) {
      auto& x = all_.emplace_back(port, address_of(i).c_str());
      x.send(web_question{.target = "/api/v1/events"}.text(port));
    }
    thread_ = std::jthread([this](const std::stop_token& stop) {
      std::vector<pollfd> what;
      for (auto& x : all_)
        what.push_back({x.descriptor(), POLLIN, 0});
      while (!stop.stop_requested()) {
        ::poll(what.data(), what.size(), 20);
        for (std::size_t i = 0; i < what.size(); ++i)
          if (what[i].revents != 0)
            bytes_ += all_[i].receive_some().size();
      }
    });
  }

  std::uint64_t bytes() const { return bytes_; }

private:
  std::deque<web_client> all_;
  std::atomic<std::uint64_t> bytes_ = 0;
  std::jthread thread_; ///< ended first
};

void measure_day(figures& out) {
  boost::asio::io_context context{1};
  web_board board("life");
  no_actions actions;
  web_routes routes({}, {{"day", board, actions}});
  web_server server(context, {boost::asio::ip::address_v4::loopback(), 0}, {}, routes);
  auto work = boost::asio::make_work_guard(context);
  std::jthread serving([&] { context.run(); });
  clockid_t clock{};
  pthread_getcpuclockid(serving.native_handle(), &clock);
  const auto there = [&](std::function<void()> f) {
    std::promise<void> done;
    boost::asio::post(context, [&] {
      f();
      done.set_value();
    });
    done.get_future().get();
  };
  std::optional<readers> read(std::in_place, server.port());
  told_day day;
  cluster_facts facts;
  const auto before = clock_ms(clock) + thread_ms();
  for (int s = 0; s < day_s; ++s) {
    facts.take(day.second(s));
    const auto status = std::make_shared<const status_reply>(facts.status());
    there([&] { board.heard(status, steady::now()); });
    if (s % 600 == 0) {
      web_client page(server.port(), "127.0.0.99");
      for (const auto* what : {"/api/v1/picture", "/api/v1/history", "/metrics"})
        if (page.ask({.target = what}).status != 200)
          throw std::runtime_error(std::string("no answer to ") + what);
    }
  }
  const auto used = (clock_ms(clock) + thread_ms() - before) / 1e3;
  out.at_most("of a core, a second's news to 50 viewers, 1,000 slots", used / day_s, max_told);
  out.at_most("MiB after a day of it", resident_mib(::getpid()), max_mib);
  out.only_shown("MB of events that the viewers read", 1e-6 * static_cast<double>(read->bytes()));
  read.reset();
  context.stop();
}

// --- a minute

/// A page: the stream of events, and questions on connections that the server may end while nothing is asked.
struct page {
  page(std::uint16_t port, int number) : port(port), number(number), events(port, address_of(number).c_str()) {
    events.send(web_question{.target = "/api/v1/events"}.text(port));
  }

  /// What page.js asks in this second: picture and history each ten, clusters each three.
  void second(int s) {
    web_client asks(port, address_of(number).c_str());
    const auto ask = [&](const char* what) {
      if (const auto x = asks.ask({.target = what}); x.status != 200)
        throw std::runtime_error(std::string(what) + " is answered with " + std::to_string(x.status) + ": " + x.body);
    };
    if ((s + number) % 10 == 0) {
      ask("/api/v1/picture");
      ask("/api/v1/history");
    }
    if ((s + number) % 3 == 0)
      ask("/api/v1/clusters");
  }

  std::uint16_t port;
  int number;
  web_client events;
};

/// For so many seconds, with the crowd alive; the manager's processor's time of one.
double each_second(local_cluster& cluster, crowd& nodes, int seconds, const std::function<void(int)>& what) {
  const auto before = used_by(cluster.manager().pid());
  const auto began = steady::now();
  for (int s = 0; s < seconds; ++s) {
    what(s);
    while (steady::now() < began + std::chrono::seconds(s + 1)) {
      nodes.beat();
      std::this_thread::sleep_for(10ms);
    }
  }
  return (used_by(cluster.manager().pid()) - before) / std::chrono::duration<double>(steady::now() - began).count();
}

void measure_minute(figures& out, const std::filesystem::path& programs, const std::filesystem::path& folder) {
  local_cluster cluster(programs, folder);
  crowd nodes;
  for (int i = 0; i < slots; ++i) {
    nodes.join(cluster.where().port, i);
    nodes.beat();
  }
  cluster.wait_for("all nodes", 60s, [&](const status_reply& x) {
    nodes.beat();
    return living(x, "worker") == slots;
  });
  constexpr int seconds = 10;
  std::vector<double> alone, with_status, with_web, web, mib;
  for (int round = 0; round < 3; ++round) {
    alone.push_back(each_second(cluster, nodes, seconds, [](int) {}));
    with_status.push_back(each_second(cluster, nodes, seconds, [&](int) { cluster.client().status(); }));
    const auto output = folder / "web.out";
    std::filesystem::remove(output);
    child_process serves(
        {{programs / "parcae", "web", "--manager", to_string(cluster.where()), "--listen", "127.0.0.1:0"},
         output,
         folder / "web.log"});
    std::string line;
    while (!line.ends_with('\n')) {
      std::this_thread::sleep_for(10ms);
      line = std::string(std::istreambuf_iterator<char>(std::ifstream(output).rdbuf()), {});
    }
    const auto port = parse_address(line.substr(line.rfind(' ') + 1, line.size() - line.rfind(' ') - 2)).port;
    std::deque<page> pages;
    for (int i = 0; i < viewers; ++i)
      pages.emplace_back(port, i);
    std::this_thread::sleep_for(1s);
    const auto before = used_by(serves.pid());
    with_web.push_back(each_second(cluster, nodes, seconds, [&](int s) {
      for (auto& x : pages)
        x.second(s);
    }));
    web.push_back((used_by(serves.pid()) - before) / seconds);
    mib.push_back(resident_mib(serves.pid()));
    serves.signal(SIGTERM);
    serves.wait(10s);
  }
  out.at_most("of a core, parcae web, 50 pages that ask, 1,000 nodes", median(web), max_asked);
  out.at_most("MiB of it", median(mib), max_mib);
  out.only_shown("of a core, the manager, 1,000 nodes", median(alone));
  out.only_shown("of a core, with one status a second", median(with_status));
  out.at_most("the manager's time with parcae web over that with one status a second",
              median(with_web) / median(with_status), max_of_status);
}

} // namespace

int main(int, char** arguments) try {
  constexpr rlim_t files = 8'192;
  rlimit now{};
  getrlimit(RLIMIT_NOFILE, &now);
  now.rlim_cur = std::max(now.rlim_cur, std::min(files, now.rlim_max));
  setrlimit(RLIMIT_NOFILE, &now);
  const auto programs = std::filesystem::absolute(arguments[0]).parent_path();
  const auto folder = std::filesystem::temp_directory_path() / ("web-bench." + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  figures out;
  measure_minute(out, programs, folder);
  measure_day(out);
  std::filesystem::remove_all(folder);
  return out.status();
} catch (const std::exception& e) {
  std::fprintf(stderr, "web_bench: %s\n", e.what());
  return EXIT_FAILURE;
}
