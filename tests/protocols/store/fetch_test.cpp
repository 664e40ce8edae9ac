// What URLs name, as files of this machine: from a web server that a test makes, and from a real S3 server.

#include "protocols/store/fetch.hpp"
#include "protocols/store/url_rules.hpp"
#include "tests/support/files.hpp"
#include "tests/support/names.hpp"
#include "tests/support/object_server.hpp"
#include "tests/support/thrown_by.hpp"
#include "tests/support/web_double.hpp"

#include <atomic>
#include <fstream>
#include <mutex>
#include <thread>

namespace parcae {
namespace {

namespace fs = std::filesystem;

std::size_t entries(const fs::path& folder) {
  return fs::exists(folder)
             ? static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()))
             : 0;
}

/// A web server with one object, in ranges.
struct web_with_one {
  std::mutex mutex;
  std::string body, tag = "\"1\"";
  std::atomic<unsigned> gone_after = 1000; ///< so many more answers
  std::atomic<unsigned> ranges = 0;        ///< of more than one byte

  web_double::response operator()(const web_double::request& x) {
    const std::lock_guard held(mutex);
    if (gone_after == 0)
      return web_double::make(404);
    --gone_after;
    auto answer = web_double::make_range(x, body, tag);
    ranges += answer.body().size() > 1;
    return answer;
  }
};

struct fetch_web : testing::Test {
  fetch_web() { setenv("PARCAE_CACHE", (folder / "cache").c_str(), 1); }
  ~fetch_web() override { unsetenv("PARCAE_CACHE"); }

  own_folder folder;
  web_with_one web;
  web_double server{[this](const auto& x) { return web(x); }};
  const std::string url = server.url("127.0.0.1") + "/models/weights.bin";
  const fetch_options quick{.store = {.pace = quick_pace()}};
};

// given: an object, looked for twice, then replaced by one of the same size / expected: copied once, a second time
// when it is another; whoever reads the first copy still can; what is fetched asks nobody
TEST_F(fetch_web, is_copied_when_it_is_another) {
  web.body = std::string(100'000, 'a');
  const auto first = fetch(url, quick);
  EXPECT_EQ(first.filename(), "weights.bin");
  EXPECT_EQ(content(first), web.body);
  const auto ranges = web.ranges.load();
  EXPECT_EQ(fetch(url, quick), first);
  EXPECT_EQ(web.ranges, ranges);
  web.body = std::string(100'000, 'b');
  EXPECT_EQ(fetched(url, quick), first);
  web.tag = "\"2\"";
  const auto second = fetch(url, quick);
  EXPECT_EQ(content(second), web.body);
  EXPECT_EQ(content(first), std::string(100'000, 'a'));
  EXPECT_EQ(fetched(url, quick), second);
  web.gone_after = 0;
  EXPECT_EQ(fetched(url, quick), second);
  EXPECT_THAT(thrown_by<store_error>([&] { fetch(url, quick); }), HasSubstr("/models/weights.bin is not there"));
}

// given: an object that goes, or is replaced, while it is copied; a stop; a cache that cannot be written to; a URL
// without a file's name / expected: one line; nothing half is left
TEST_F(fetch_web, what_fails_leaves_nothing) {
  web.body = std::string(300'000, 'a');
  web.gone_after = 1;
  EXPECT_THAT(thrown_by<store_error>([&] { fetch(url, quick); }), HasSubstr("/models/weights.bin"));
  EXPECT_EQ(entries(fetch_folder()), 0u);
  web.gone_after = 1000;
  std::stop_source stop;
  stop.request_stop();
  EXPECT_NE(thrown_by<store_error>([&] { fetch(url, {.store = {.stop = stop.get_token(), .pace = quick_pace()}}); }),
            "");
  EXPECT_EQ(entries(fetch_folder()), 0u);
  EXPECT_THAT(thrown_by<store_error>([&] { fetch(server.url("127.0.0.1") + "/", quick); }), HasSubstr("a file's name"));
  EXPECT_THAT(thrown_by<store_error>([&] { fetch(server.url("127.0.0.1") + "/a/..", quick); }),
              HasSubstr("a file's name"));
  std::ofstream(folder / "file") << "no folder";
  setenv("PARCAE_CACHE", (folder / "file").c_str(), 1);
  EXPECT_THAT(thrown_by<store_error>([&] { fetch(url, quick); }), HasSubstr("cannot be copied to"));
}

// given: eight who want it at once / expected: all have it, and one copy is left
TEST_F(fetch_web, of_several_one_stays) {
  web.body = std::string(200'000, 'x');
  std::vector<std::jthread> threads;
  std::atomic<int> right = 0;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&] { right += content(fetch(url, quick)) == web.body; });
  threads.clear();
  EXPECT_EQ(right, 8);
  EXPECT_EQ(entries(fetch_folder()), 1u);
}

// given / expected
TEST(fetch_rules, tables) {
  EXPECT_EQ(beside("https://x/a/b.json?token=1", "c"), "https://x/a/c");
  EXPECT_EQ(beside("s3://bucket/index.json", "c"), "s3://bucket/c");
  const std::vector<fs::path> places{"/data", "s3://ours/", "https://x/data"};
  for (const auto* good : {"s3://ours", "s3://ours/a/b", "https://x/data/y"})
    EXPECT_EQ(thrown_by<store_error>([&] { require_allowed(good, places); }), "") << good;
  for (const auto* bad : {"s3://ours2/a", "https://x/data2", "http://x/data/y", "https://x/data/../z",
                          "https://x/data/..", "https://x/data/%2e%2e/z", "https://x/data/a%2F.%2E/z",
                          "https://x/data/%252e%252e/z", "https://x/data/..\\z", "https://x/data/./z", "s3://other/a"})
    EXPECT_THAT(thrown_by<store_error>([&] { require_allowed(bad, places); }),
                HasSubstr("--data /data, s3://ours, https://x/data"))
        << bad;
  for (const auto* good : {"https://x/data/a..b", "https://x/data/100%", "https://x/data/y?at=/../"})
    EXPECT_EQ(thrown_by<store_error>([&] { require_allowed(good, places); }), "") << good;
  EXPECT_EQ(thrown_by<store_error>([&] { require_allowed("https://anything", {}); }), "");
}

// given / expected: only a place that names a host is a reason to ask this machine, or who is on its link
TEST(fetch_rules, say_for_whose_sake) {
  EXPECT_TRUE(require_allowed("http://x/y", {}));
  EXPECT_FALSE(require_allowed("http://x/y", {"http://", "s3://"}));
  EXPECT_TRUE(require_allowed("http://x/y", {"http://", "http://x"}));
  EXPECT_NE(thrown_by<store_error>([] { require_allowed("ftp://x/y", {"/", "s3://", "https://", "http://"}); }), "");
}

// given: a node that lets jobs ask any web server; this machine, by its address, by names of it, as IPv6, and a
// cloud's metadata / expected: not dialled; by a person, or if --data names it, it is
TEST_F(fetch_web, jobs_do_not_reach_this_machine) {
  web.body = "secret";
  auto of_job = quick;
  of_job.store.places = {"/", "s3://", "https://", "http://"};
  of_job.store.pace.attempts = 1;
  const auto port = url.substr(url.rfind(':'), url.find("/models") - url.rfind(':'));
  const auto left = web.gone_after.load();
  for (const auto* host : {"127.0.0.1", "localhost", "127.1.2.3", "0.0.0.0", "[::1]", "[::ffff:127.0.0.1]",
                           "169.254.169.254", "[fe80::1]", "[fd00:ec2::254]"})
    EXPECT_THAT(
        thrown_by<store_error>([&] { fetch("http://" + std::string(host) + port + "/models/weights.bin", of_job); }),
        HasSubstr("is this machine, or on its link"))
        << host;
  EXPECT_EQ(web.gone_after, left) << "nobody was asked";
  EXPECT_EQ(thrown_by<store_error>([&] { fetch(url, quick); }), "");
  of_job.store.places.emplace_back(server.url("127.0.0.1"));
  EXPECT_EQ(thrown_by<store_error>([&] { fetch(url, of_job); }), "");
}

// given: a server that jobs may ask, which redirects elsewhere / expected: refused, unless jobs may ask that, too
TEST_F(fetch_web, redirections_stay_within_what_is_allowed) {
  web.body = "at last";
  web_double other([&](const auto& x) {
    auto answer = web_double::make(302);
    answer.set("Location", std::string(x.target()) == "/near.bin" ? "/models/../weights.bin" : url);
    return answer;
  });
  auto of_job = quick;
  of_job.store.places = {other.url("127.0.0.1")};
  const auto far = other.url("127.0.0.1") + "/far.bin";
  EXPECT_THAT(thrown_by<store_error>([&] { fetch(far, of_job); }),
              testing::AllOf(HasSubstr(url), HasSubstr("is not below what this node lets jobs use: --data")));
  EXPECT_THAT(thrown_by<store_error>([&] { fetch(other.url("127.0.0.1") + "/near.bin", of_job); }),
              HasSubstr("is not below"));
  of_job.store.places.emplace_back(server.url("127.0.0.1") + "/models");
  EXPECT_EQ(content(fetch(far, of_job)), "at last");
}

// given: neither a cache nor a home / expected: nothing is copied, least of all below /tmp; a line says what to set
TEST_F(fetch_web, without_a_home_nothing_is_copied) {
  const auto set_again = [](const char* name, const std::optional<std::string>& value) {
    if (value)
      setenv(name, value->c_str(), 1);
  };
  const auto taken = [](const char* name) {
    const auto* value = std::getenv(name);
    auto result = value ? std::optional<std::string>(value) : std::nullopt;
    unsetenv(name);
    return result;
  };
  web.body = "x";
  const auto cache = taken("PARCAE_CACHE"), xdg = taken("XDG_CACHE_HOME"), home = taken("HOME");
  EXPECT_THAT(thrown_by<store_error>([&] { fetch(url, quick); }), HasSubstr("set PARCAE_CACHE"));
  set_again("PARCAE_CACHE", cache);
  set_again("XDG_CACHE_HOME", xdg);
  set_again("HOME", home);
  const auto copy = fetch(url, quick);
  EXPECT_EQ(fs::status(copy.parent_path().parent_path()).permissions(), fs::perms::owner_all);
}

struct fetch_s3 : object_server_test {
  void SetUp() override {
    object_server_test::SetUp();
    setenv("PARCAE_CACHE", (folder / "cache").c_str(), 1);
  }
  void TearDown() override { unsetenv("PARCAE_CACHE"); }

  void put(const std::string& name, const std::string& text) {
    const auto writer = open_store(place)->create(name, text.size());
    writer->write(std::as_bytes(std::span(text)));
    writer->publish();
  }

  own_folder folder;
};

// given: a prefix with folders, an object by its own name, one more object, a wanted part / expected: the same tree
// here; another one when something was added; what is not there is said so
TEST_F(fetch_s3, prefixes_are_folders) {
  put("a.bin", "first");
  put("b/c.bin", "second");
  put("b/d/e.txt", std::string(3'000'000, 'z'));
  const auto first = fetch(place + "/");
  EXPECT_EQ(content(first / "a.bin"), "first");
  EXPECT_EQ(content(first / "b/c.bin"), "second");
  EXPECT_EQ(content(first / "b/d/e.txt"), std::string(3'000'000, 'z'));
  EXPECT_EQ(fetch(place), fetch(place));
  EXPECT_EQ(content(fetch(place + "/b/c.bin")), "second");
  const auto some = fetch(place, {.wanted = [](std::string_view x) { return x == "a.bin"; }});
  EXPECT_TRUE(fs::exists(some / "a.bin"));
  EXPECT_FALSE(fs::exists(some / "b"));
  put("f.bin", "more");
  const auto second = fetch(place);
  EXPECT_EQ(content(second / "f.bin"), "more");
  EXPECT_FALSE(fs::exists(first / "f.bin"));
  EXPECT_THAT(thrown_by<store_error>([&] { fetch(place + "/nothing"); }), HasSubstr("/nothing is not there"));
}

} // namespace
} // namespace parcae
