// Data as samples.

#include "gpu/data/dataset.hpp"
#include "tests/support/files.hpp"
#include "tests/support/thrown_by.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>

namespace parcae {
namespace {

namespace fs = std::filesystem;

class dataset_test : public testing::Test {
protected:
  void write(const std::string& name, std::string_view text) { write_file(folder / name, text); }

  static std::shared_ptr<const dataset> load(const fs::path& path, std::uint32_t sequence) {
    return load_dataset({.path = path.string()}, {.sequence = sequence});
  }

  /// Inputs of all samples one after the other, then the last target.
  static std::string to_string(const dataset& data, std::uint32_t sequence) {
    std::string result;
    std::vector<std::int64_t> input(sequence), target(sequence);
    for (std::uint64_t i = 0; i < data.size(); ++i) {
      data.read(i, input, target);
      EXPECT_TRUE(std::equal(input.begin() + 1, input.end(), target.begin())) << "sample " << i;
      for (auto token : input)
        result += static_cast<char>(token);
    }
    return result + static_cast<char>(target.back());
  }

  static std::string error_of(const fs::path& path, std::uint32_t sequence = 4) {
    return thrown_by([&] { load(path, sequence); });
  }

  own_folder folder;
};

// given: length of the text, sequence / expected: samples
TEST_F(dataset_test, consecutive_samples_share_one_token) {
  struct row {
    std::size_t length;
    std::uint32_t sequence;
    std::uint64_t samples;
  };
  for (const auto& [length, sequence, samples] :
       std::vector<row>{{5, 4, 1}, {8, 4, 1}, {9, 4, 2}, {12, 4, 2}, {13, 4, 3}, {2, 1, 1}, {10, 1, 9}}) {
    std::string text;
    for (std::size_t i = 0; i < length; ++i)
      text += static_cast<char>('a' + i);
    write("text", text);
    auto data = load(folder / "text", sequence);
    EXPECT_EQ(data->size(), samples);
    EXPECT_EQ(to_string(*data, sequence), text.substr(0, samples * sequence + 1));
  }
}

TEST_F(dataset_test, bytes_are_not_signed) {
  write("text", "\x80\xff\x01");
  std::int64_t input[2], target[2];
  load(folder, 2)->read(0, input, target);
  EXPECT_EQ(input[0], 128);
  EXPECT_EQ(input[1], 255);
  EXPECT_EQ(target[1], 1);
}

TEST_F(dataset_test, files_are_sorted_by_relative_path) {
  // '-' < '.' < '/' < '0' in bytes
  write("b", "5");
  write("a/z", "3");
  write("a0", "4");
  write("a-b", "1");
  write("a.txt", "2");
  write("a/c/d", "!");
  write("B", "0");
  EXPECT_EQ(to_string(*load(folder, 1), 1), "012!345");
}

TEST_F(dataset_test, links_and_special_files_below_the_folder_are_ignored) {
  write("folder/one", "one ");
  write("elsewhere/two", "two ");
  fs::create_symlink(folder / "elsewhere/two", folder / "folder/link");
  fs::create_directory_symlink(folder / "elsewhere", folder / "folder/links");
  fs::create_directory_symlink(folder / "folder", folder / "folder/loop");
  ASSERT_EQ(::mkfifo((folder / "folder/pipe").c_str(), 0600), 0);
  EXPECT_EQ(to_string(*load(folder / "folder", 1), 1), "one ");
}

TEST_F(dataset_test, a_link_named_by_the_user_is_followed) {
  write("folder/one", "one ");
  fs::create_directory_symlink(folder / "folder", folder / "link");
  EXPECT_EQ(to_string(*load(folder / "link", 1), 1), "one ");
}

TEST_F(dataset_test, digest_covers_paths_and_contents) {
  write("x/a", "text");
  write("y/a", "text");
  write("renamed/b", "text");
  write("changed/a", "tExt");
  write("split/a", "te");
  write("split/b", "xt");
  auto digest = [&](const char* name) { return load(folder / name, 1)->digest(); };
  EXPECT_EQ(digest("x"), digest("y"));
  // Python: hashlib.sha256(b"a\0" b"4\0text").hexdigest(); as one file: b"\0" b"4\0text"
  EXPECT_EQ(digest("x"), "22d089c6b81716c745518d8e7164bd67a71e88ef0d211bee7d7a7206d513cdb9");
  EXPECT_EQ(digest("x/a"), "97188aaf229afc9214f0d09cdbac4901391542111de78ca99989a6a1bd35ca3b");
  for (auto other : {"renamed", "changed", "split", "x/a"})
    EXPECT_NE(digest("x"), digest(other)) << other;
}

TEST_F(dataset_test, errors_name_the_path) {
  write("short/a", "abcd");
  fs::create_directory(folder / "empty");
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  struct row {
    fs::path path;
    const char* reason;
  };
  for (const auto& [path, reason] : std::vector<row>{
           {folder / "missing", "no such file or folder"},
           {folder / "short", "has 4 tokens, one sample needs 5"},
           {folder / "short/a", "has 4 tokens"},
           {folder / "empty", "has 0 tokens"},
           {folder / "pipe", "is no regular file"},
           {"/proc/self/mem", "error"}, // opens, but the read fails
       }) {
    EXPECT_NE(error_of(path).find(path.string()), std::string::npos) << error_of(path);
    EXPECT_NE(error_of(path).find(reason), std::string::npos) << error_of(path);
  }
}

TEST_F(dataset_test, unreadable_file_and_folder_are_named) {
  // Permissions do not bind root: become nobody for the time of the test.
  struct unprivileged {
    bool root = ::geteuid() == 0;
    bool changed = root && ::seteuid(65534) == 0;
    ~unprivileged() {
      if (changed && ::seteuid(0) != 0)
        std::abort();
    }
  };
  write("a/file", "text");
  write("b/folder/file", "text");
  fs::permissions(folder, fs::perms::all);
  fs::permissions(folder / "a/file", fs::perms::none);
  fs::permissions(folder / "b/folder", fs::perms::none);
  {
    unprivileged here;
    if (here.root && !here.changed)
      GTEST_SKIP() << "cannot give up root";
    for (auto [path, culprit] :
         {std::pair{"a", "a/file: cannot be opened: Permission"}, std::pair{"b", "b/folder: Permission"}})
      EXPECT_NE(error_of(folder / path, 1).find((folder / culprit).string()), std::string::npos)
          << error_of(folder / path);
  }
  fs::permissions(folder / "b/folder", fs::perms::owner_all);
}

TEST_F(dataset_test, reads_out_of_range_are_refused) {
  write("text", "abcdefghi");
  auto data = load(folder / "text", 4);
  std::vector<std::int64_t> four(4), three(3);
  EXPECT_THROW(data->read(2, four, four), std::out_of_range);
  EXPECT_THROW(data->read(0, three, four), std::out_of_range);
  EXPECT_THROW(data->read(0, four, three), std::out_of_range);
}

TEST(dataset, unknown_kind_is_refused) {
  EXPECT_THROW(load_dataset({.kind = "films", .path = "/"}, {}), std::runtime_error);
}

// --- other formats

TEST_F(dataset_test, tokens_are_little_endian_numbers_of_two_bytes) {
  write("tokens", std::string_view("\x01\x00\x02\x01\xff\xff\x00\x80\x05\x00", 10));
  auto data = load_dataset({.kind = "tokens", .path = folder.string()}, {.sequence = 2, .vocabulary = 65'536});
  ASSERT_EQ(data->size(), 2u);
  std::int64_t input[2], target[2];
  data->read(0, input, target);
  EXPECT_EQ(input[0], 1);
  EXPECT_EQ(input[1], 258);
  EXPECT_EQ(target[1], 65'535);
  data->read(1, input, target);
  EXPECT_EQ(input[1], 32'768);
  EXPECT_EQ(target[1], 5);
}

/// 3 records of images of 2×2 with 2 channels, record r: label r, pixels 10·r, 10·r + 1, …
std::string three_images() {
  std::string bytes;
  for (int r = 0; r < 3; ++r) {
    bytes += static_cast<char>(r);
    for (int i = 0; i < 8; ++i)
      bytes += static_cast<char>(100 * r + i);
  }
  return bytes;
}

const model_specification of_images{.kind = "resnet", .image = 2, .channels = 2, .classes = 3};

TEST_F(dataset_test, images_follow_their_labels) {
  write("b.bin", three_images());
  write("a.bin", three_images().substr(9, 9));
  write("readme.html", "not an image");
  auto data = load_dataset({.kind = "images", .path = folder.string()}, of_images);
  ASSERT_EQ(data->size(), 4u);
  std::vector<std::int64_t> pixels(8), label(1);
  for (auto [index, image] : {std::pair{0u, 1}, {1u, 0}, {2u, 1}, {3u, 2}}) {
    data->read(index, pixels, label);
    EXPECT_EQ(label[0], image);
    for (int i = 0; i < 8; ++i)
      EXPECT_EQ(pixels[static_cast<std::size_t>(i)], 100 * image + i);
  }
  EXPECT_THROW(data->read(4, pixels, label), std::out_of_range);
  EXPECT_THROW(data->read(0, pixels, pixels), std::out_of_range);
}

// given: a file that does not suit the model / expected: the error says so
TEST_F(dataset_test, unsuitable_data_is_refused) {
  write("odd", "abc");
  write("large", std::string_view("\x01\x00\x02\x01\x03\x00", 6));
  write("short.bin", three_images().substr(0, 26));
  write("images.bin", three_images());
  struct row {
    data_specification data;
    model_specification model;
    const char* says;
  };
  auto two_classes = of_images;
  two_classes.classes = 2;
  const auto at = [&](const char* kind, const char* name, std::uint64_t validation = 0) {
    return data_specification{.kind = kind, .path = name, .validation = validation};
  };
  for (const auto& [data, model, says] : std::vector<row>{
           {at("tokens", "odd"), {.sequence = 1}, "has 3 bytes, tokens have 2"},
           {at("tokens", "large"), {.sequence = 1, .vocabulary = 258}, "token 1 is 258, the vocabulary has 258"},
           {at("images", "short.bin"), of_images, "has 26 bytes, not a multiple of 9"},
           {at("images", "images.bin"), two_classes, "image 2 has label 2, the model has 2 classes"},
           {at("images", "none"), of_images, "no such file"},
           {at("images", "images.bin", 3), of_images, "has 3 samples, and 3 are to be kept for validation"},
       }) {
    auto with_folder = data;
    with_folder.path = (folder / data.path).string();
    std::string error;
    try {
      load_dataset(with_folder, model);
    } catch (const std::runtime_error& e) {
      error = e.what();
    }
    EXPECT_NE(error.find(says), std::string::npos) << error << " / " << says;
  }
}

// given: folders that jobs may read, and paths in them, beside them, and out of them by links and dots / expected: only
// what is below one of them is read; the error names the path and the option
TEST_F(dataset_test, only_what_is_allowed_is_read) {
  write("public/a", "0123456789");
  write("public/sub/b", "0123456789");
  write("publicity/c", "0123456789");
  write("secret", "0123456789");
  fs::create_symlink(folder / "secret", folder / "public/link");
  fs::create_symlink("..", folder / "public/up");
  fs::create_symlink(folder / "public/sub", folder / "way-in");
  const model_specification model{.sequence = 2};
  const std::vector<fs::path> allowed{folder / "public", folder / "not-there"};
  const auto error_of = [&](const fs::path& path, const std::vector<fs::path>& folders) {
    return thrown_by([&] { load_dataset({.path = path.string()}, model, folders); });
  };
  for (const auto* good : {"public", "public/a", "public/sub", "public/sub/../a", "way-in/b"})
    EXPECT_EQ(error_of(folder / good, allowed), "") << good;
  for (const auto* bad : {"secret", "publicity", "public/link", "public/up/secret", "public/../secret", "."})
    EXPECT_EQ(error_of(folder / bad, allowed),
              "data " + (folder / bad).string() + ": is not below what this node lets jobs use: --data " +
                  (folder / "public").string() + ", " + (folder / "not-there").string());
  EXPECT_NE(error_of(folder / "none", allowed), "");
  EXPECT_EQ(error_of(folder / "secret", {}), "");
  EXPECT_EQ(error_of(folder / "public/a", {"/"}), "");
  load_dataset({.kind = "synthetic", .samples = 20}, model, allowed);
}

TEST(dataset, synthetic_tokens_follow_their_rule) {
  const model_specification model{.sequence = 1000, .vocabulary = 50};
  auto data = load_dataset({.kind = "synthetic", .samples = 20, .seed = 3}, model);
  ASSERT_EQ(data->size(), 20u);
  std::vector<std::int64_t> input(1000), target(1000), again(1000);
  std::size_t successors = 0;
  for (std::uint64_t i = 0; i < 20; ++i) {
    data->read(i, input, target);
    ASSERT_TRUE(std::equal(input.begin() + 1, input.end(), target.begin()));
    for (std::size_t t = 0; t < 1000; ++t) {
      ASSERT_TRUE(input[t] >= 0 && input[t] < 50);
      successors += target[t] == (input[t] + 1) % 50;
    }
  }
  // 3/4, and of the rest one in 50; standard deviation 0.003
  EXPECT_NEAR(static_cast<double>(successors) / 20'000, 0.755, 0.012);
  const auto last = input;
  data->read(19, again, target);
  EXPECT_EQ(again, last);
  load_dataset({.kind = "synthetic", .samples = 20, .seed = 4}, model)->read(19, again, target);
  EXPECT_NE(again, last);
}

// The mean over a class tells its pattern: its images differ less from it than from that of the other classes.
TEST(dataset, synthetic_images_have_a_pattern_by_class) {
  const model_specification model{.kind = "vgg", .image = 32, .classes = 3};
  auto data = load_dataset({.kind = "synthetic", .samples = 300, .seed = 3}, model);
  std::vector<std::int64_t> pixels(3072), label(1);
  std::vector<std::vector<double>> mean(3, std::vector<double>(3072));
  std::vector<double> count(3);
  for (std::uint64_t i = 0; i < 200; ++i) {
    data->read(i, pixels, label);
    auto of_class = static_cast<std::size_t>(label[0]);
    ++count[of_class];
    for (std::size_t k = 0; k < 3072; ++k) {
      ASSERT_TRUE(pixels[k] >= 0 && pixels[k] < 256);
      mean[of_class][k] += static_cast<double>(pixels[k]);
    }
  }
  for (std::uint64_t i = 200; i < 300; ++i) {
    data->read(i, pixels, label);
    std::vector<double> distance(3);
    for (std::size_t c = 0; c < 3; ++c)
      for (std::size_t k = 0; k < 3072; ++k)
        distance[c] += std::abs(static_cast<double>(pixels[k]) - mean[c][k] / count[c]);
    EXPECT_EQ(std::min_element(distance.begin(), distance.end()) - distance.begin(), label[0]);
  }
}

} // namespace
} // namespace parcae
