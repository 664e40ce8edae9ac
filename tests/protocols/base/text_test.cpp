// What comes from elsewhere: text on its way to people, lines that strangers cause, files.

#include "protocols/base/input_file.hpp"
#include "protocols/base/line_limit.hpp"
#include "protocols/base/printable.hpp"
#include "protocols/base/text.hpp"
#include "tests/support/files.hpp"
#include "tests/support/names.hpp"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <random>

namespace parcae {
namespace {

// given / expected: HOST, or HOST:PORT; IPv6 in brackets
TEST(host_and_port, are_taken_apart) {
  const auto again = [](const char* text) {
    const auto x = parse_host_and_port(text);
    return !x ? "none" : x->port ? with_port(x->host, *x->port) : x->host;
  };
  for (const auto* x : {"a:1", "127.0.0.1:65535", "[fd00::7]:80", "a.example"})
    EXPECT_EQ(again(x), x);
  EXPECT_EQ(again("[fd00::7]"), "fd00::7");
  for (const auto* x :
       {"", ":", ":1", "a:", "a:x", "a:1x", "a:65536", "a:-1", "a:1:2", "fd00::7:80", "[a", "[a]b", "[]"})
    EXPECT_EQ(again(x), "none") << x;
}

// given / expected: one line without commands for the terminal, in any language
TEST(printable, table) {
  const std::pair<std::string, std::string> table[] = {
      {"", ""},
      {"plain ASCII ~!", "plain ASCII ~!"},
      {"naïve – 训练 – обучение – 2×1 … 😀", "naïve – 训练 – обучение – 2×1 … 😀"},
      {"a\x1b[2J\x1b]0;title\x07z", "a?[2J?]0;title?z"}, // escape sequences
      {"a\xc2\x9b"
       "2J",
       "a?2J"},                                           // the same of one character
      {"one\ntwo\r\nthree\tfour", "one two  three four"}, // lines
      {"one\xe2\x80\xa8two\xe2\x80\xa9three\xc2\x85", "one two three?"},
      {std::string("a\0b\x7f", 4), "a?b?"}, // other control characters
      {"a\xe2\x80\xae"
       "gnp.exe",
       "a?gnp.exe"}, // right to left
      {"\xd8\x9c\xe2\x80\x8e\xe2\x80\x8f\xe2\x81\xa6\xe2\x81\xa9", "?????"},
      {"a\xe2\x80\x8b"
       "b\xef\xbb\xbf\xf3\xa0\x81\xa1",
       "a?b??"},          // not seen at all
      {"\xff\xfe", "??"}, // no UTF-8
      {"\xc3", "?"},
      {"\xc3(", "?("},
      {"\xc0\xaf\xe0\x80\xaf\xf0\x80\x80\xaf", "???"}, // longer than needed
      {"\xed\xa0\x80\xf4\x90\x80\x80", "??"},          // no characters
      {"\xef\xbf\xbd", "?"},
  };
  for (const auto& [text, expected] : table)
    EXPECT_EQ(printable(text), expected);
  EXPECT_EQ(printable_lines("a\x1b\nb\n"), "a?\nb\n");
}

// given: text of more than some bytes / expected: cut between characters
TEST(printable, is_of_bounded_length) {
  EXPECT_EQ(printable("0123456789", 10), "0123456789");
  EXPECT_EQ(printable("0123456789a", 10), "0123456…");
  EXPECT_EQ(printable("ääääää", 10), "äää…");
  EXPECT_EQ(printable(std::string(1 << 20, '\x1b'), 6), "???…");
}

// given: random bytes / expected: no control character and no invalid UTF-8 is left, what is clean stays as it is
TEST(printable, of_random_bytes) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 20'000; ++i) {
    std::string text(random() % 12, '\0');
    for (auto& c : text)
      c = static_cast<char>(random() % 3 == 0 ? 0x80 + random() % 0x80 : random());
    const auto once = printable(text);
    EXPECT_EQ(printable(once), once);
    for (std::string_view rest = once; !rest.empty();) {
      const auto x = take_character(rest);
      EXPECT_TRUE(x >= 0x20 && x != 0x7F && x != 0xFFFD && !(x >= 0x80 && x < 0xA0)) << static_cast<unsigned>(x);
    }
  }
}

// given: a flood of lines, in the middle of it and long after / expected: five lines, then one in ten seconds that
// tells of the others
TEST(line_limit, lets_few_of_many_through) {
  line_limit limit;
  line_limit::time_point now{1h};
  for (int i = 0; i < 5; ++i)
    EXPECT_EQ(limit.admit(now), "");
  std::vector<std::string> lines;
  for (int i = 0; i < 10'000; ++i) {
    now += 10ms; // 100 s in all
    if (const auto line = limit.admit(now))
      lines.push_back(*line);
  }
  ASSERT_EQ(lines.size(), 10u);
  for (const auto& line : lines)
    EXPECT_EQ(line, " (999 more like it were not written)");
  now += 1h;
  EXPECT_EQ(limit.admit(now), "");
  for (int i = 0; i < 4; ++i)
    EXPECT_EQ(limit.admit(now), "");
  EXPECT_EQ(limit.admit(now), std::nullopt);
}

struct input_file_test : testing::Test {
  std::string error_of(const std::string& name, bool follow = true) {
    try {
      input_file file(folder / name, follow);
    } catch (const input_error& e) {
      EXPECT_THAT(e.what(), HasSubstr((folder / name).string() + " " + e.reason));
      return e.reason;
    }
    return {};
  }

  own_folder folder;
};

// given: what is no regular file / expected: said at once; a pipe that nobody writes to is not waited for
TEST_F(input_file_test, only_regular_files) {
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  std::filesystem::create_directory(folder / "folder");
  std::filesystem::create_symlink("pipe", folder / "link-to-pipe");
  std::ofstream(folder / "file") << "text";
  std::filesystem::create_symlink("file", folder / "link");
  for (const auto* name : {"pipe", "link-to-pipe", "../../dev/null"})
    EXPECT_EQ(error_of(name), "is no regular file") << name;
  EXPECT_EQ(error_of("folder"), "is a folder");
  EXPECT_EQ(error_of("none"), "cannot be opened: No such file or directory");
  EXPECT_EQ(error_of("link"), "");
  EXPECT_THAT(error_of("link", false), HasSubstr("cannot be opened"));
}

TEST_F(input_file_test, reads_what_is_there) {
  const std::string text = "0123456789";
  std::ofstream(folder / "file") << text;
  input_file file(folder / "file");
  EXPECT_EQ(file.size(), 10u);
  std::string got(6, '\0');
  EXPECT_EQ(file.read(std::as_writable_bytes(std::span(got))), 6u);
  EXPECT_EQ(got, "012345");
  file.seek(8);
  EXPECT_EQ(file.read(std::as_writable_bytes(std::span(got))), 2u);
  EXPECT_EQ(got.substr(0, 2), "89");
  EXPECT_EQ(contents_of(folder / "file", 10), text);
  EXPECT_THROW(contents_of(folder / "file", 9), input_error);
  EXPECT_FALSE(contents_of("/proc/self/status", 1 << 20).empty()) << "its size is said to be 0";
}

} // namespace
} // namespace parcae
