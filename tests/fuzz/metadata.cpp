// Answers of the clouds' metadata servers: one question after the other of a series, with bytes for answers.

#include "protocols/base/printable.hpp"
#include "runtime/cloud/poll_schedule.hpp"
#include "tests/fuzz/fuzz.hpp"

namespace parcae {
namespace {

constexpr cloud clouds[] = {cloud::aws, cloud::gcp, cloud::azure};

bool is_header(const std::string& text) {
  return text.find_first_of(std::string_view("\r\n\0", 3)) == text.npos;
}

void check(const metadata_question& x) {
  promise(is_header(x.target) && x.target.find(' ') == x.target.npos, "a target is one word");
  for (const auto& [name, value] : x.headers)
    promise(is_header(value), "a header is one line");
  promise(x.limit.count() > 0, "an answer has a limit");
}

void check(const std::string& reason) {
  promise(!reason.empty() && printable(reason) == reason && reason.size() < 400, "a reason is one short line");
}

} // namespace
} // namespace parcae

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace parcae;
  using namespace std::chrono_literals;
  fuzz_input input(data, size);
  const poll_pace pace;
  poll_state::time_point now{1'000'000s};
  auto all = poll_series(clouds[input.take<std::uint8_t>() % std::size(clouds)], now);
  auto series = all.at(input.take<std::uint8_t>() % all.size());
  while (!input.rest().empty()) {
    const auto next = next_poll(series, pace);
    check(next.question);
    promise(next.at <= now + pace.seldom, "it is never left for long");
    now = std::max(now, next.at);
    metadata_answer answer;
    answer.status = input.take<std::uint8_t>() % 8 == 0 ? input.take<std::uint16_t>() : 200;
    for (auto* text : {&answer.date, &answer.etag, &answer.flavor, &answer.token_ttl, &answer.body})
      *text = input.take_line();
    const auto news = heard(series, pace, next.about, answer, now, now, wall_time(1'505'722'800s));
    if (news.notice) {
      check(news.notice->reason);
      promise(news.notice->left > 0ms && news.notice->left <= longest_notice, "a notice is bounded");
      check(acknowledgement_of(news.notice->event, 1s));
    }
    if (news.risk && !news.risk->empty())
      check(*news.risk);
    if (!news.problem.empty())
      check(news.problem);
  }
  return 0;
}
