// The files that checkpoints are made of: whole or not there, and refused by name when they are not what they seem.

#include "gpu/checkpoint/safetensors.hpp"
#include "protocols/base/durable_file.hpp"
#include "tests/gpu/keeper/checkpoint_folder.hpp"
#include "tests/support/names.hpp"
#include "tests/support/thrown_by.hpp"

#include <boost/json.hpp>

#include <sys/stat.h>

#include <cstring>

namespace parcae {
namespace {

// given: JSON that is no header, one object and more, and headers of many bytes / expected: the file is named; more
// than the limit is not read, and what is read takes a bounded amount of memory
TEST_F(checkpoint_folder_test, headers_are_bounded_objects) {
  const auto file_with = [&](const std::string& header) {
    const std::uint64_t length = header.size();
    std::string bytes(sizeof length, '\0');
    std::memcpy(bytes.data(), &length, sizeof length);
    put(folder / "x", bytes + header);
  };
  const auto error = [&]() { return thrown_by([&] { safetensors_file file(folder / "x"); }); };
  file_with("{}");
  EXPECT_EQ(error(), "");
  for (const auto* text :
       {"[1, 2]", "3", "null", "\"text\"", "{} {}", "{\"a\": 1}", "{\"a\": {}}", "{\"__metadata__\": []}",
        "{\"a\": {\"dtype\": \"F32\", \"shape\": 1, \"data_offsets\": [0, 4]}}"}) {
    file_with(text);
    EXPECT_THAT(error(), HasSubstr((folder / "x").string() + " has a malformed header")) << text;
  }
  std::string lists;
  while (lists.size() < safetensors_header_limit_bytes)
    lists += "[],";
  const auto peak_kib = [] {
    rusage used{};
    getrusage(RUSAGE_SELF, &used);
    return used.ru_maxrss;
  };
  file_with("[" + lists + "1]");
  auto before = peak_kib();
  EXPECT_THAT(error(), HasSubstr("is not a safetensors file"));
  EXPECT_LT(peak_kib() - before, 1 << 10);
  lists.resize(lists.size() / 3 * 3 - 30);
  file_with("[" + lists + "1]");
  before = peak_kib();
  EXPECT_THAT(error(), HasSubstr("has a malformed header"));
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LT(peak_kib() - before, 512 << 10);
#endif
}

// given: the header that is written / expected: the format's example, by hand
TEST(safetensors, header_is_that_of_the_format) {
  const auto header = safetensors_header({{"a", {2, 3}}, {"b", {}}}, {{"format", "pt"}});
  std::uint64_t length = 0;
  std::memcpy(&length, header.data(), sizeof length);
  ASSERT_EQ(header.size(), sizeof length + length);
  EXPECT_EQ(length % 8, 0u);
  EXPECT_EQ(boost::json::parse(header.substr(sizeof length)), boost::json::parse(R"({
    "__metadata__": {"format": "pt"},
    "a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
    "b": {"dtype": "F32", "shape": [], "data_offsets": [24, 28]}})"));
}

// given: a disk that takes only some bytes, after a good version of the file / expected: an error that names the file,
// the good one is still there, nothing else is left
TEST_F(checkpoint_folder_test, a_full_disk_leaves_what_was) {
  put(folder / "file", "good");
  std::string error;
  try {
    const full_disk disk;
    durable_file file(folder / "file");
    file.write(std::string(2000, 'x'));
    file.publish();
  } catch (const std::system_error& e) {
    error = e.what();
  }
  EXPECT_THAT(error, HasSubstr("cannot write " + (folder / "file").string()));
  EXPECT_EQ(content(folder / "file"), "good");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1) << "no part is left";
}

// given: two who write the same file at once, a link, a folder, a pipe / expected: each file whole, the last published
// is there; what the link names is written, the others are refused and stay
TEST_F(checkpoint_folder_test, files_are_whole_whoever_writes_them) {
  std::filesystem::create_directories(folder);
  durable_file one(folder / "file"), two(folder / "file");
  one.write(std::string(10, '1'));
  two.write(std::string(20, '2'));
  one.publish();
  EXPECT_EQ(content(folder / "file"), std::string(10, '1'));
  two.publish();
  EXPECT_EQ(content(folder / "file"), std::string(20, '2'));
  std::filesystem::create_symlink("file", folder / "link");
  durable_file linked(folder / "link");
  linked.write("3");
  linked.publish();
  EXPECT_EQ(content(folder / "file"), "3");
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link"));
  std::filesystem::create_symlink("not-yet", folder / "ahead");
  durable_file made(folder / "ahead");
  made.write("4");
  made.publish();
  EXPECT_EQ(content(folder / "not-yet"), "4");
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  std::filesystem::create_directory(folder / "folder");
  for (const char* name : {"pipe", "folder"})
    EXPECT_THROW(durable_file(folder / name), std::system_error) << name;
  EXPECT_TRUE(std::filesystem::is_fifo(folder / "pipe"));
}

} // namespace
} // namespace parcae
