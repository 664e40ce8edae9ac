#include "tests/support/market_double.hpp"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>

namespace parcae {

namespace {

namespace fs = std::filesystem;

constexpr std::chrono::milliseconds look_again{20};
constexpr int times_faster = 300;

const char* const hook_script = R"(#!/usr/bin/env python3
import json, os, pathlib, subprocess, sys, time
folder = pathlib.Path(__file__).parent
conduct = (folder / "conduct").read_text()
text = sys.stdin.read()
with open(folder / "requests", "a") as all:
    all.write(text + "\n")
request = json.loads(text)
if conduct == "fails":
    sys.exit("the double fails")
if conduct == "hangs":
    time.sleep(1000)
if conduct == "slow":
    time.sleep(1)
if conduct == "lies":
    print(json.dumps({"pools": [{"name": x["name"], "can": x["want"]} for x in request["pools"]]}))
    sys.exit()
if conduct == "starts_twice":
    for x in request["pools"]:
        x["want"] *= 2
os.environ.update(PARCAE_LOCAL=str(folder), PARCAE_LOCAL_COMMAND=(folder / "node").read_text(),
                  PYTHONDONTWRITEBYTECODE="1")
done = subprocess.run([(folder / "local").read_text()], input=json.dumps(request), capture_output=True, text=True)
sys.stderr.write(done.stderr)
sys.stdout.write("launched\n" if conduct == "nonsense" else done.stdout)
sys.exit(done.returncode)
)";

const char* name_of(hook_conduct x) {
  constexpr const char* names[] = {"good", "fails", "hangs", "slow", "nonsense", "lies", "starts_twice"};
  return names[static_cast<std::size_t>(x)];
}

// Of a file of /proc; nothing if the process ends meanwhile, which the stream tells by an exception.
std::string text_in(const fs::path& path) try {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
} catch (const std::exception&) {
  return {};
}

// In one step: the hook may be reading.
void write_text(const fs::path& path, const std::string& text) {
  const auto next = path.string() + ".next";
  std::ofstream(next) << text;
  fs::rename(next, path);
}

// Words with a zero behind each, as /proc has command lines and environments.
std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> result;
  std::istringstream all(text);
  for (std::string x; std::getline(all, x, '\0');)
    result.push_back(x);
  return result;
}

std::string value_behind(const std::vector<std::string>& words, const std::string& option) {
  const auto at = std::ranges::find(words, option);
  return at == words.end() || at + 1 == words.end() ? "" : *(at + 1);
}

// Since when a process is there, as the kernel has it: who looks may come late.
std::chrono::steady_clock::time_point start_of(const fs::path& process, std::chrono::steady_clock::time_point now) {
  const auto stat = text_in(process / "stat");
  std::istringstream fields(stat.substr(std::min(stat.rfind(')'), stat.size()))), clock(text_in("/proc/uptime"));
  std::string skipped;
  for (int i = 2; i < 22; ++i)
    fields >> skipped;
  double ticks = 0, up_s = 0;
  if (!(fields >> ticks && clock >> up_s))
    return now; // it has just ended
  const auto age = std::chrono::duration<double>(up_s - ticks / static_cast<double>(sysconf(_SC_CLK_TCK)));
  return std::chrono::steady_clock::now() - std::chrono::duration_cast<std::chrono::steady_clock::duration>(age);
}

unsigned available_in(const pool_trace& pool, std::chrono::milliseconds at) {
  unsigned result = 0;
  for (const auto& [from, number] : pool.available)
    if (from <= at)
      result = number;
  return result;
}

double hours(std::chrono::steady_clock::duration x) {
  return std::chrono::duration<double, std::ratio<3600>>(x).count();
}

} // namespace

market_double::market_double(market_double_options options) : options_(std::move(options)) {
  for (const auto& x : options_.pools)
    accounts_[x.pool];
  write_hook();
  look(clock::now());
  watch_ = std::jthread([this](const std::stop_token& stop) { watch(stop); });
}

market_double::~market_double() {
  watch_ = {};
  be(hook_conduct::fails);
  for (const auto& [name, x] : found(clock::now()))
    kill(x.pid, SIGKILL);
  const std::lock_guard held(mutex_);
  over_ = true;
  changed_.notify_all();
}

void market_double::write_hook() const {
  write_text(folder_.path() / "conduct", name_of(hook_conduct::good));
  write_text(folder_.path() / "node", options_.node);
  write_text(folder_.path() / "local", PARCAE_HOOKS "/local");
  write_text(hook(), hook_script);
  fs::permissions(hook(), fs::perms::owner_all);
}

std::vector<std::string> market_double::pools() const {
  std::vector<std::string> result;
  for (const auto& x : options_.pools)
    result.push_back(x.pool);
  return result;
}

void market_double::be(hook_conduct x) {
  write_text(folder_.path() / "conduct", name_of(x));
}

void market_double::be(feed_conduct x) {
  const std::lock_guard held(mutex_);
  feed_ = x;
  changed_.notify_all();
}

web_double::response market_double::answer() {
  std::unique_lock held(mutex_);
  changed_.wait(held, [this] { return feed_ != feed_conduct::hangs || over_; });
  if (feed_ == feed_conduct::away || over_)
    return web_double::make(503);
  if (feed_ == feed_conduct::garbage)
    return web_double::make(200, "<html>\nno,price,at,all\n\xFF\xFE,1\n" + options_.pools.at(0).pool + ",NaN\n");
  if (feed_ == feed_conduct::endless)
    return web_double::make(200, std::string(8 << 20, '\n'));
  std::ostringstream text;
  for (const auto& x : options_.pools) {
    text << x.pool << "," << (feed_ == feed_conduct::jumps ? 20 : 1) * x.usd_per_h;
    if (options_.tells_available)
      text << "," << available_in(x, time(clock::now()));
    text << "\n";
  }
  return web_double::make(200, text.str());
}

void market_double::watch(const std::stop_token& stop) {
  for (; !stop.stop_requested(); std::this_thread::sleep_for(look_again))
    look(clock::now());
}

// Nodes that the hook started: they have its environment. A node's guardian has its command line and comes later.
std::map<std::string, market_double::instance> market_double::found(clock::time_point now) const {
  std::map<std::string, instance> result;
  const auto mark = "PARCAE_LOCAL=" + folder_.path().string();
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const auto number = entry.path().filename().string();
    if (number.find_first_not_of("0123456789") != std::string::npos)
      continue;
    const auto words = words_of(text_in(entry.path() / "cmdline"));
    const auto pool = value_behind(words, "--pool"), name = value_behind(words, "--name");
    if (!accounts_.contains(pool) || !name.starts_with(pool + "-"))
      continue;
    const auto environment = words_of(text_in(entry.path() / "environ"));
    if (std::ranges::find(environment, mark) == environment.end())
      continue;
    const auto pid = static_cast<pid_t>(std::stoi(number));
    if (const auto [at, is_new] = result.try_emplace(name, instance{pool, pid, start_of(entry.path(), now)});
        !is_new && pid < at->second.pid)
      at->second.pid = pid;
  }
  return result;
}

std::chrono::milliseconds market_double::time(clock::time_point now) const {
  return options_.time ? options_.time()
                       : std::chrono::duration_cast<std::chrono::milliseconds>(now - began_) * times_faster;
}

void market_double::look(clock::time_point now) {
  const auto at = time(now);
  auto there = found(now);
  const std::lock_guard held(mutex_);
  std::erase_if(instances_, [&](const auto& x) {
    if (there.contains(x.first))
      return false;
    accounts_.at(x.second.pool).hours[x.first] = hours(now - x.second.began);
    return true;
  });
  for (auto& [name, x] : there)
    if (instances_.try_emplace(name, x).second)
      ++accounts_.at(x.pool).started;
  for (const auto& pool : options_.pools) {
    auto& account = accounts_.at(pool.pool);
    const auto count = std::ranges::count_if(instances_, [&](const auto& x) { return x.second.pool == pool.pool; });
    account.most = std::max(account.most, static_cast<std::size_t>(count));
    take(pool, available_in(pool, at));
  }
}

// Every second by notice, the others at once.
void market_double::take(const pool_trace& pool, unsigned available) {
  write_text(folder_.path() / (pool.pool + ".most"), std::to_string(available));
  auto& account = accounts_.at(pool.pool);
  auto left =
      std::ranges::count_if(instances_, [&](const auto& x) { return x.second.pool == pool.pool && !x.second.is_told; });
  for (auto& [name, x] : instances_)
    if (x.pool == pool.pool && !x.is_told && left > static_cast<std::ptrdiff_t>(available)) {
      kill(x.pid, account.taken++ % 2 == 0 ? SIGTERM : SIGKILL);
      x.is_told = true;
      --left;
    }
}

std::vector<std::string> market_double::running(const std::string& pool) const {
  const std::lock_guard held(mutex_);
  std::vector<std::string> result;
  for (const auto& [name, x] : instances_)
    if (x.pool == pool)
      result.push_back(name);
  return result;
}

const pool_trace& market_double::trace_of(const std::string& pool) const {
  const auto found = std::ranges::find(options_.pools, pool, &pool_trace::pool);
  if (found == options_.pools.end())
    throw std::invalid_argument("the double has no pool " + pool);
  return *found;
}

std::size_t market_double::most(const std::string& pool) const {
  const std::lock_guard held(mutex_);
  return accounts_.at(pool).most;
}

std::size_t market_double::started(const std::string& pool) const {
  const std::lock_guard held(mutex_);
  return accounts_.at(pool).started;
}

std::size_t market_double::taken(const std::string& pool) const {
  const std::lock_guard held(mutex_);
  return accounts_.at(pool).taken;
}

std::map<std::string, double> market_double::bills_usd(const std::string& pool) const {
  const std::lock_guard held(mutex_);
  auto result = accounts_.at(pool).hours;
  for (const auto& [name, x] : instances_)
    if (x.pool == pool)
      result[name] = hours(clock::now() - x.began);
  for (auto& [name, usd] : result)
    usd *= trace_of(pool).usd_per_h;
  return result;
}

double market_double::billed_usd(const std::string& pool) const {
  double result = 0;
  for (const auto& [name, usd] : bills_usd(pool))
    result += usd;
  return result;
}

std::vector<std::string> market_double::requests() const {
  std::vector<std::string> result;
  std::ifstream file(folder_.path() / "requests");
  for (std::string x; std::getline(file, x);)
    result.push_back(x);
  return result;
}

} // namespace parcae
