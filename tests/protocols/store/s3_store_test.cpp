// Objects in a real S3 server, and through a proxy that spoils requests.

#include "tests/support/eventually.hpp"
#include "tests/support/names.hpp"
#include "tests/support/object_server.hpp"
#include "tests/support/request_proxy.hpp"

#include <algorithm>
#include <atomic>
#include <random>
#include <thread>

namespace parcae {
namespace {

constexpr std::size_t part = 5 << 20;
constexpr std::size_t three_parts = 2 * part + 1'000'000;

std::vector<std::byte> random_bytes(std::size_t size) {
  std::mt19937 random(7);
  std::vector<std::byte> result(size);
  for (auto& x : result)
    x = static_cast<std::byte>(random());
  return result;
}

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

struct s3_store : object_server_test {
  std::shared_ptr<object_store> store(const std::string& at = {}, const store_pace& pace = quick_pace()) const {
    return open_store(place, {at, {}, {}, pace});
  }

  static void put(object_store& to, const std::string& name, std::span<const std::byte> bytes) {
    const auto writer = to.create(name, bytes.size());
    for (std::size_t at = 0; at < bytes.size(); at += 1'000'000)
      writer->write(bytes.subspan(at, std::min<std::size_t>(1'000'000, bytes.size() - at)));
    writer->publish();
  }

  static std::vector<std::byte> content(const object_store& of, const std::string& name) {
    const auto reader = of.open(name);
    std::vector<std::byte> result(reader->size());
    reader->read(0, result);
    return result;
  }

  /// What it throws: what, and which trouble.
  template <class Function>
  static std::pair<std::string, store_trouble> error_of(Function f) {
    try {
      f();
    } catch (const store_error& e) {
      return {e.what(), e.trouble};
    }
    return {};
  }

  std::size_t unfinished(const std::string& of) const {
    std::size_t result = 0;
    store()->below(of)->give_up_unfinished([&](std::string_view) {
      ++result;
      return false;
    });
    return result;
  }
};

// given: objects of no bytes, of less than a part, of just one and two parts, and of more, with odd names / expected:
// read back whole and in ranges; listed level by level; gone when removed
TEST_F(s3_store, keeps_what_is_put) {
  const auto s = store();
  EXPECT_THAT(s->list().objects, IsEmpty());
  const auto bytes = random_bytes(three_parts);
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, part, 2 * part, three_parts}) {
    const auto name = "run/200@3/k+" + std::to_string(size);
    put(*s, name, std::span(bytes).first(size));
    EXPECT_TRUE(std::ranges::equal(content(*s, name), std::span(bytes).first(size))) << size;
  }
  const auto largest = "k+" + std::to_string(three_parts);
  const auto reader = s->open("run/200@3/" + largest);
  for (const auto& [from, size] : {std::pair<std::size_t, std::size_t>(0, 10),
                                   {three_parts - 10, 10},
                                   {5, 1},
                                   {part - 5, 10},
                                   {65'530, 12},
                                   {10, 500'000},
                                   {3, 0}}) {
    std::vector<std::byte> some(size);
    reader->read(from, some);
    EXPECT_TRUE(std::ranges::equal(some, std::span(bytes).subspan(from, size))) << from << " " << size;
  }
  std::byte beyond{};
  EXPECT_THROW(reader->read(three_parts, {&beyond, 1}), store_error);
  EXPECT_THAT(s->list().folders, ElementsAre("run"));
  EXPECT_THAT(s->below("run")->list().folders, ElementsAre("200@3"));
  const auto list = s->below("run/200@3")->list();
  ASSERT_THAT(list.objects, SizeIs(5));
  EXPECT_EQ(list.objects[0].name, "k+0");
  const auto last = std::ranges::find(list.objects, largest, &stored_object::name);
  ASSERT_NE(last, list.objects.end());
  EXPECT_EQ(last->bytes, three_parts);
  EXPECT_LT(std::chrono::abs(last->written - std::chrono::system_clock::now()), 5min);
  s->remove("run/200@3/k+1");
  s->remove("run/200@3/k+1");
  EXPECT_EQ(error_of([&] { s->open("run/200@3/k+1"); }).second, store_trouble::absent);
  EXPECT_THAT(s->below("run/200@3")->list().objects, SizeIs(4));
}

// given: 1,050 objects at a place, and 1,050 places with one each: servers list 1,000 at a time / expected: all are
// listed, once each; what is removed there is gone
TEST_F(s3_store, more_than_one_answer_lists_is_listed) {
  constexpr int count = 1'050;
  const auto s = store();
  const auto name = [](int i) { return "k" + std::to_string(10'000 + i); };
  for (int i = 0; i < count; ++i) {
    ASSERT_TRUE(s->put_if_absent("objects/" + name(i), bytes_of("x")));
    ASSERT_TRUE(s->put_if_absent("places/" + name(i) + "/x", bytes_of("x")));
  }
  const auto objects = s->below("objects");
  const auto listed = objects->list();
  const auto places = s->below("places")->list();
  ASSERT_THAT(listed.objects, SizeIs(count));
  ASSERT_THAT(places.folders, SizeIs(count));
  EXPECT_THAT(listed.folders, IsEmpty());
  EXPECT_THAT(places.objects, IsEmpty());
  for (int i = 0; i < count; ++i) {
    EXPECT_EQ(listed.objects[static_cast<std::size_t>(i)].name, name(i));
    EXPECT_EQ(places.folders[static_cast<std::size_t>(i)], name(i));
  }
  for (const auto& x : listed.objects)
    objects->remove(x.name);
  EXPECT_THAT(objects->list().objects, IsEmpty());
}

// given: what nobody published / expected: it is not there, nor are parts of it; those of another writer are
TEST_F(s3_store, what_is_not_published_is_not_there) {
  const auto s = store();
  const auto bytes = random_bytes(three_parts);
  s->create("a/k", 100)->write(std::span(bytes).first(100));
  s->create("a/k", bytes.size())->write(bytes);
  EXPECT_THAT(s->below("a")->list().objects, IsEmpty());
  EXPECT_EQ(unfinished("a"), 0u) << "it is given up at once";
}

// given: several who put one object if it is absent, at once / expected: one does; who wrote these very bytes is told
// so
TEST_F(s3_store, of_several_one_puts) {
  std::atomic<int> puts = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 6; ++i)
    threads.emplace_back([&, i] { puts += store()->put_if_absent("m", bytes_of("by " + std::to_string(i))); });
  for (auto& x : threads)
    x.join();
  EXPECT_EQ(puts, 1);
  const auto winner = content(*store(), "m");
  EXPECT_TRUE(store()->put_if_absent("m", winner));
  EXPECT_FALSE(store()->put_if_absent("m", bytes_of("by me")));
  EXPECT_FALSE(store()->put_if_absent("m", bytes_of("longer than what is there")));
}

// given: a wrong secret, an unknown key, a bucket that is not there, nobody who listens / expected: told in one line,
// with what to do, without the secret
TEST_F(s3_store, refusals_are_told) {
  setenv("AWS_SECRET_ACCESS_KEY", "wrong-secret", 1);
  auto [what, trouble] = error_of([&] { store()->list(); });
  EXPECT_EQ(trouble, store_trouble::unreachable);
  EXPECT_THAT(what, HasSubstr("403"));
  EXPECT_THAT(what, HasSubstr("see whether the credentials"));
  EXPECT_THAT(what, testing::Not(HasSubstr("wrong-secret")));
  EXPECT_THAT(error_of([&] { put(*store(), "x", bytes_of("y")); }).first, HasSubstr("403"));
  EXPECT_THAT(error_of([&] { store()->open("x"); }).first, HasSubstr("403"));
  setenv("AWS_ACCESS_KEY_ID", "nobody", 1);
  EXPECT_THAT(error_of([&] { store()->list(); }).first, HasSubstr("403"));
  unsetenv("AWS_ACCESS_KEY_ID");
  EXPECT_THAT(error_of([&] { store()->list(); }).first, HasSubstr("no credentials for S3"));
  setenv("AWS_ACCESS_KEY_ID", key.c_str(), 1);
  setenv("AWS_SECRET_ACCESS_KEY", secret.c_str(), 1);
  EXPECT_THAT(error_of([&] { open_store("s3://no-such-bucket/x")->list(); }).first,
              testing::AllOf(HasSubstr("NoSuchBucket"), HasSubstr("make the bucket")));
  EXPECT_THAT(error_of([&] { store("http://127.0.0.1:1")->list(); }).first,
              testing::AllOf(HasSubstr("http://127.0.0.1:1"), HasSubstr("refused"), HasSubstr("3 attempts")));
}

/// What is spoilt, once at each request and then always, and what comes of it.
struct spoilt {
  fate how;
  const char* told; ///< once all attempts fail
};

// given: a proxy that spoils each request of an upload once, in every way / expected: it is there, whole. given: it
// spoils all of them from some request on / expected: an error that says why, and no object
TEST_F(s3_store, spoilt_requests_are_sent_again) {
  const auto bytes = random_bytes(three_parts);
  for (const auto& [how, told] : {spoilt{fate::hang_up, "ends too early"},
                                  {fate::cut_request, "ends too early"},
                                  {fate::lose_answer, "ends too early"},
                                  {fate::unavailable, "SlowDown"},
                                  {fate::silence, "waited 2s for its answer"}}) {
    const auto pace = how == fate::silence ? impatient_pace() : quick_pace();
    const auto name = "o" + std::to_string(static_cast<int>(how));
    std::atomic<unsigned> spoil = 0, all = 0; // the request to spoil; whether all from there on
    request_proxy proxy(port(), [&](const seen_request& x) {
      const auto which = spoil.load();
      return which != 0 && (x.number == which || (all != 0 && x.number > which)) ? how : fate::pass;
    });
    put(*store(proxy.endpoint(), pace), name + "-whole", bytes);
    const auto requests = static_cast<unsigned>(proxy.requests().size());
    ASSERT_EQ(requests, 5u) << testing::PrintToString(proxy.requests());
    for (unsigned n = 1; n <= requests; ++n) {
      const auto next = name + "-" + std::to_string(n);
      spoil = static_cast<unsigned>(proxy.requests().size()) + n;
      put(*store(proxy.endpoint(), pace), next, bytes);
      EXPECT_TRUE(std::ranges::equal(content(*store(), next), bytes)) << next;
    }
    for (const unsigned n : {1u, 3u}) {
      if (n == 1 && how == fate::silence)
        continue; // seconds, for what the others have shown
      const auto next = name + "-never-" + std::to_string(n);
      spoil = static_cast<unsigned>(proxy.requests().size()) + n;
      all = 1;
      EXPECT_THAT(error_of([&] { put(*store(proxy.endpoint(), pace), next, bytes); }).first, HasSubstr(told)) << next;
      all = 0;
      EXPECT_EQ(error_of([&] { store()->open(next); }).second, store_trouble::absent);
    }
  }
}

// given: answers that end in their midst, while an object is read / expected: what is read is whole, or an error
TEST_F(s3_store, cut_answers_are_asked_for_again) {
  const auto bytes = random_bytes(40'000);
  put(*store(), "o", bytes);
  std::atomic<bool> always = false;
  request_proxy proxy(port(), [&](const seen_request& x) {
    return x.method == "GET" && (always || x.number % 2 == 0) ? fate::cut_answer : fate::pass;
  });
  EXPECT_TRUE(std::ranges::equal(content(*store(proxy.endpoint()), "o"), bytes));
  always = true;
  EXPECT_THAT(error_of([&] { content(*store(proxy.endpoint()), "o"); }).first, HasSubstr("ends too early"));
}

// given: an object that is replaced while it is read / expected: an error, not bytes of both
TEST_F(s3_store, what_is_replaced_is_not_read) {
  const auto bytes = random_bytes(200'000);
  const auto s = store();
  put(*s, "o", bytes);
  const auto reader = s->open("o");
  std::vector<std::byte> part(10);
  reader->read(0, part);
  auto other = bytes;
  std::ranges::reverse(other);
  put(*s, "o", other);
  EXPECT_EQ(error_of([&] { reader->read(150'000, part); }).second, store_trouble::damaged);
}

// given: a clock that the server takes for an hour wrong; credentials that are over, and others soon / expected: the
// request is made again with the server's time; with what the file says then
TEST_F(s3_store, clock_and_credentials_are_set_right) {
  unsigned skewed = 0;
  request_proxy proxy(port(), [&](const seen_request& x) {
    skewed += x.number <= 1;
    return x.number <= 1 ? fate::skewed : fate::pass;
  });
  // The real server's clock is ours, so what was corrected is refused in turn, and corrected back.
  EXPECT_THAT(store(proxy.endpoint())->list().objects, IsEmpty());
  EXPECT_EQ(skewed, 1u);
  EXPECT_GE(proxy.requests().size(), 3u) << "the server takes no request an hour ahead";

  request_proxy expiring(port(), [&](const seen_request& x) { return x.number == 1 ? fate::expired : fate::pass; });
  const auto s = store(expiring.endpoint());
  EXPECT_THAT(error_of([&] { s->list(); }).first, HasSubstr("ExpiredToken")) << "they have just been read";
  EXPECT_THAT(s->list().objects, IsEmpty());
}

// given: a stop, while a server says nothing / expected: an error within moments
TEST_F(s3_store, a_stop_ends_waiting) {
  request_proxy proxy(port(), [](const seen_request&) { return fate::silence; });
  std::stop_source stop;
  const auto s = open_store(place, {proxy.endpoint(), {}, stop.get_token(), {}});
  std::jthread stopper([&] {
    eventually([&] { return !proxy.requests().empty(); });
    stop.request_stop();
  });
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THAT(error_of([&] { s->list(); }).first, HasSubstr("stopped"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 5s);
}

// given: an object of S3 and its like on the web / expected: opened by URL, read in ranges
TEST_F(s3_store, objects_have_urls) {
  const auto bytes = random_bytes(20'000);
  put(*store(), "a/o", bytes);
  const auto reader = open_object(place + "/a/o", {.pace = quick_pace()});
  ASSERT_EQ(reader->size(), bytes.size());
  std::vector<std::byte> part(7'000);
  reader->read(9'000, part);
  EXPECT_TRUE(std::ranges::equal(part, std::span(bytes).subspan(9'000, 7'000)));
  EXPECT_EQ(error_of([&] { open_object(place + "/a/p", {.pace = quick_pace()}); }).second, store_trouble::absent);
}

} // namespace
} // namespace parcae
