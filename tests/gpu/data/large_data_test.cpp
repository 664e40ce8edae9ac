// Data of gigabytes: sparse files, which take no room on the disk.

#include "gpu/data/samples.hpp"
#include "tests/gpu/data/data_folder.hpp"
#include "tests/support/names.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <chrono>

namespace parcae {
namespace {

constexpr std::uint64_t gib = std::uint64_t{1} << 30;

struct large_data : data_test {
  std::filesystem::path sparse(const std::string& name, std::uint64_t bytes) {
    const auto path = folder / name;
    const auto file = ::open(path.c_str(), O_CREAT | O_WRONLY | O_TRUNC, 0600);
    EXPECT_TRUE(file >= 0 && ::ftruncate(file, static_cast<off_t>(bytes)) == 0);
    ::close(file);
    return path;
  }

  static void put(const std::filesystem::path& path, std::uint64_t place, std::string_view bytes) {
    const auto file = ::open(path.c_str(), O_WRONLY);
    EXPECT_EQ(::pwrite(file, bytes.data(), bytes.size(), static_cast<off_t>(place)),
              static_cast<ssize_t>(bytes.size()));
    ::close(file);
  }

  std::shared_ptr<const dataset> load_tokens(const std::filesystem::path& path) {
    return load_dataset({.kind = "tokens", .path = path.string()}, model);
  }

  const model_specification model{.sequence = 1024, .vocabulary = 1000};
};

// given: 4 GiB of zeros with a few tokens near the end / expected: they are read, without the file being read
TEST_F(large_data, a_sample_is_read_where_it_is) {
  const auto path = sparse("tokens", 4 * gib);
  const auto last = (2 * gib - 1) / 1024 - 1;
  put(path, 2 * (last * 1024 + 5), std::string_view("\x07\x01", 2));
  const auto began = std::chrono::steady_clock::now();
  const auto data = load_tokens(path);
  EXPECT_EQ(data->size(), last + 1);
  std::vector<std::int64_t> input(1024), target(1024);
  data->read(last, input, target);
  EXPECT_EQ(input[5], 263);
  EXPECT_EQ(target[4], 263);
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(10)) << "was it read whole?";
  put(path, 2 * (last * 1024 + 5), std::string_view("\xe8\x03", 2));
  try {
    data->read(last, input, target);
    FAIL() << "1000 is no token";
  } catch (const sample_error& e) {
    EXPECT_THAT(e.what(),
                HasSubstr("is 1000, the vocabulary has 1000 (at byte " + std::to_string(2 * (last * 1024 + 5)) + ","));
  }
}

// given: a file that becomes shorter / expected: an error that names it and the place; what is still there can be read;
// it is spoiled, so that it will be opened anew
TEST_F(large_data, a_file_that_shrinks_is_an_error) {
  const auto path = sparse("tokens", 40 << 20);
  const auto data = load_tokens(path);
  std::vector<std::int64_t> input(1024), target(1024);
  data->read(data->size() - 1, input, target);
  std::filesystem::resize_file(path, 20 << 20);
  EXPECT_FALSE(data->spoiled());
  try {
    data->read(data->size() - 1, input, target);
    FAIL() << "it is not there";
  } catch (const sample_error&) {
    FAIL() << "another node may have it";
  } catch (const data_error& e) {
    EXPECT_THAT(e.what(), HasSubstr(path.string() + ": has become shorter: nothing is at byte "));
    EXPECT_THAT(e.what(), HasSubstr("of 41943040 when the job's data was opened"));
  }
  EXPECT_TRUE(data->spoiled());
  data->read(0, input, target);
  EXPECT_NE(load_tokens(path)->digest(), data->digest());
}

// given: data of more than a gibibyte / expected: its digest is of sizes, names and samples; that of all of it tells of
// a single byte, can be stopped, and is asked for of large data only
TEST_F(large_data, digests) {
  const auto path = sparse("a", gib + 4096);
  const auto data = load_tokens(path);
  const auto digest = data->digest();
  const std::atomic<bool> go_on = false, stop = true;
  EXPECT_EQ(data->whole_digest(stop), "");
  const auto whole = data->whole_digest(go_on);
  EXPECT_EQ(whole.size(), 64u);
  put(path, 12'345, "x");
  EXPECT_NE(data->whole_digest(go_on), whole);
  put(path, 600 << 20, std::string(gib / 512 + 8192, '\1')); // as long as is noticed for certain
  EXPECT_NE(load_tokens(path)->digest(), digest);
  EXPECT_NE(load_tokens(sparse("b", gib + 8192))->digest(), digest);
  const auto small = load_tokens(sparse("c", 40 << 20));
  EXPECT_EQ(small->whole_digest(go_on), "");
}

// given: 40 MiB in a hundred files, more than are open at once / expected: as from one file
TEST_F(large_data, many_files_are_one_after_the_other) {
  std::string all;
  for (int i = 0; i < 100; ++i) {
    std::vector<std::uint16_t> tokens(210'000 + static_cast<std::size_t>(i));
    for (std::size_t k = 0; k < tokens.size(); ++k)
      tokens[k] = static_cast<std::uint16_t>((static_cast<std::size_t>(i) * 7 + k * k) % 1000);
    const auto name = std::to_string(1000 + i);
    write("many/" + name, bytes_of(tokens));
    all += bytes_of(tokens);
  }
  write("one", all);
  const auto many = load_tokens(folder / "many"), one = load_tokens(folder / "one");
  ASSERT_EQ(many->size(), one->size());
  std::vector<std::int64_t> input(1024), target(1024), other(1024), other_target(1024);
  for (std::uint64_t i = 0; i < one->size(); i += 3) {
    many->expect(i);
    many->read(i, input, target);
    one->read(i, other, other_target);
    ASSERT_EQ(input, other) << i;
    ASSERT_EQ(target, other_target) << i;
  }
}

} // namespace
} // namespace parcae
