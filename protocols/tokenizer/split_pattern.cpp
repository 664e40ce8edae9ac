#include "protocols/tokenizer/split_pattern.hpp"

#include "protocols/base/printable.hpp"
#include "protocols/tokenizer/byte_pairs.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <cctype>

namespace parcae {

namespace {

constexpr std::size_t max_pattern = 4096;
constexpr std::uint32_t steps_to_begin_with = 10'000, steps_per_byte = 20; // of a match
constexpr std::uint32_t max_heap_kib = 64 * 1024;

template <auto Free>
struct pcre2_free {
  template <class T>
  void operator()(T* x) const {
    Free(x);
  }
};
template <class T, auto Free>
using pcre2_ptr = std::unique_ptr<T, pcre2_free<Free>>;

/// Goes through a pattern, and writes it for PCRE2.
class translation {
public:
  explicit translation(std::string_view pattern) : rest_(pattern) {}

  std::string done() {
    while (!rest_.empty())
      one();
    return std::move(result_);
  }

private:
  void one() {
    if (rest_.front() == '\\')
      return escape();
    const auto begins = [&](std::string_view x) { return rest_.starts_with(x); };
    if (in_class_) {
      if (begins("[") || begins("&&"))
        fail("a class within a class");
      in_class_ = !begins("]");
    } else if (begins("[")) {
      take(begins("[^") ? 2 : 1);
      if (begins("]"))
        fail("a class that begins with ]");
      in_class_ = true;
      return;
    } else if (begins("(?")) {
      constexpr std::string_view known[] = {"(?:", "(?i:", "(?=", "(?!", "(?<=", "(?<!"};
      const auto* const found = std::ranges::find_if(known, begins);
      if (found == std::end(known))
        fail("a group that begins with " + printable(rest_.substr(0, 3)));
      return take(found->size());
    } else if (begins("{,") || begins("}+") || begins("^") || begins("$") || begins(".")) {
      fail(std::string(rest_.substr(0, begins("{") || begins("}") ? 2 : 1)));
    }
    take(1);
  }

  void escape() {
    const auto what = rest_.size() > 1 ? rest_[1] : ' ';
    if (what == 's' || what == 'S') { // PCRE2's own has U+180E, which is no white space since Unicode 6.3
      result_ += what == 's' ? "\\p{White_Space}" : "\\P{White_Space}";
      rest_.remove_prefix(2);
    } else if (what == 'p' || what == 'P') { // of general categories: PCRE2 takes scripts for their extensions
      const auto end = rest_.find('}');
      const auto name = end == rest_.npos ? "" : rest_.substr(2, end - 2);
      if (name.size() < 2 || name.size() > 3 || name[0] != '{' || !std::isupper(static_cast<unsigned char>(name[1])))
        fail(printable(rest_.substr(0, 8)) + ", which is no general category");
      take(end + 1);
    } else if (std::isalnum(static_cast<unsigned char>(what)) && what != 'r' && what != 'n' && what != 't') {
      fail("\\" + printable({&what, 1}));
    } else {
      take(2);
    }
  }

  void take(std::size_t size) {
    result_ += rest_.substr(0, size);
    rest_.remove_prefix(std::min(size, rest_.size()));
  }

  [[noreturn]] static void fail(const std::string& what) {
    throw tokenizer_error("the pattern has " + what + ", which is not understood");
  }

  std::string_view rest_;
  std::string result_;
  bool in_class_ = false;
};

std::string message_of(int code) {
  char text[128] = "";
  pcre2_get_error_message(code, reinterpret_cast<PCRE2_UCHAR*>(text), sizeof text);
  return text;
}

PCRE2_SPTR as_pcre2(const char* x) {
  return reinterpret_cast<PCRE2_SPTR>(x);
}

} // namespace

split_pattern::split_pattern(std::string_view pattern) {
  if (pattern.size() > max_pattern)
    throw tokenizer_error("the pattern is longer than 4 KiB");
  const auto text = translation(pattern).done();
  int bad = 0;
  std::size_t at = 0;
  code_ = {pcre2_compile(as_pcre2(text.data()), text.size(), PCRE2_UTF | PCRE2_UCP, &bad, &at, nullptr),
           pcre2_code_free};
  if (!code_)
    throw tokenizer_error("the pattern is wrong: " + message_of(bad));
  std::uint32_t matches_nothing = 0;
  pcre2_pattern_info(code_.get(), PCRE2_INFO_MATCHEMPTY, &matches_nothing);
  if (matches_nothing != 0)
    throw tokenizer_error("the pattern may match nothing");
}

std::vector<std::string_view> split_pattern::split(const std::vector<std::string_view>& pieces) const {
  const pcre2_ptr<pcre2_match_data, pcre2_match_data_free> found(pcre2_match_data_create(1, nullptr));
  const pcre2_ptr<pcre2_match_context, pcre2_match_context_free> limits(pcre2_match_context_create(nullptr));
  if (!found || !limits)
    throw std::bad_alloc();
  pcre2_set_heap_limit(limits.get(), max_heap_kib);
  const auto* const place = pcre2_get_ovector_pointer(found.get());
  std::vector<std::string_view> result;
  for (const auto piece : pieces) {
    pcre2_set_match_limit(limits.get(),
                          steps_to_begin_with + steps_per_byte * static_cast<std::uint32_t>(piece.size()));
    for (std::size_t begin = 0; begin < piece.size();) {
      const auto code = pcre2_match(code_.get(), as_pcre2(piece.data()), piece.size(), begin, PCRE2_NO_UTF_CHECK,
                                    found.get(), limits.get());
      if (code < 0 && code != PCRE2_ERROR_NOMATCH)
        throw tokenizer_error("the tokenizer's pattern gives up on this text: " + message_of(code));
      const auto first = code < 0 ? piece.size() : place[0];
      if (begin < first)
        result.push_back(piece.substr(begin, first - begin));
      if (code < 0)
        break;
      result.push_back(piece.substr(first, place[1] - first));
      begin = place[1];
    }
  }
  return result;
}

} // namespace parcae
