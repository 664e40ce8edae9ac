// Data that comes as NumPy's files, as columns, in folders of images, from several sources.

#include "gpu/data/columns.hpp"
#include "gpu/data/npy.hpp"
#include "gpu/data/picture.hpp"
#include "gpu/data/samples.hpp"
#include "tests/gpu/data/data_folder.hpp"
#include "tests/gpu/data/pictures.hpp"
#include "tests/support/names.hpp"

#include <sys/resource.h>

#include <map>
#include <set>

namespace parcae {
namespace {

using values = std::vector<std::int64_t>;

struct formats : data_test {
  static std::pair<values, values> sample(const dataset& data, std::uint64_t index, std::size_t input,
                                          std::size_t target) {
    std::pair<values, values> result{values(input), values(target)};
    data.read(index, result.first, result.second);
    return result;
  }
};

const model_specification of_tokens{.sequence = 2, .vocabulary = 70'000};

// given: tokens of two and four bytes, and NumPy's files of several types, in one folder / expected: one row of tokens
TEST_F(formats, tokens_of_any_width_follow_each_other) {
  write("four.bin", bytes_of<std::uint32_t>({1, 65'536, 69'999, 4, 5}));
  auto data = load({.kind = "tokens", .token_bytes = 4}, of_tokens, "four.bin");
  ASSERT_EQ(data->size(), 2u);
  EXPECT_EQ(sample(*data, 0, 2, 2), std::pair(values{1, 65'536}, values{65'536, 69'999}));
  EXPECT_EQ(sample(*data, 1, 2, 2), std::pair(values{69'999, 4}, values{4, 5}));
  std::filesystem::remove(folder / "four.bin");

  write("a.npy", npy_of("<u2", "(3,)", bytes_of<std::uint16_t>({1, 2, 40'000})));
  write("b.npy", npy_of("<i8", "(2,)", bytes_of<std::int64_t>({4, 69'999})));
  write("c.bin", bytes_of<std::uint16_t>({6}));
  write("d.npy", npy_of("|u1", "(1,)", bytes_of<std::uint8_t>({255})));
  data = load({.kind = "tokens"}, of_tokens);
  ASSERT_EQ(data->size(), 3u);
  EXPECT_EQ(sample(*data, 0, 2, 2), std::pair(values{1, 2}, values{2, 40'000}));
  EXPECT_EQ(sample(*data, 1, 2, 2), std::pair(values{40'000, 4}, values{4, 69'999}));
  EXPECT_EQ(sample(*data, 2, 2, 2), std::pair(values{69'999, 6}, values{6, 255}));
  EXPECT_EQ(data->file_of(1), (folder / "a.npy").string());
}

TEST_F(formats, rows_of_numpy_are_samples) {
  write("rows.npy", npy_of("<i4", "(2, 3)", bytes_of<std::int32_t>({1, 2, 3, 4, 5, 6})));
  const auto data = load({.kind = "tokens"}, of_tokens, "rows.npy");
  ASSERT_EQ(data->size(), 2u);
  EXPECT_EQ(sample(*data, 1, 2, 2), std::pair(values{4, 5}, values{5, 6}));
}

TEST_F(formats, wrong_numpy_files_are_refused) {
  const auto two = bytes_of<std::uint16_t>({1, 2, 3, 4});
  const std::map<std::string, std::pair<std::string, const char*>> rows{
      {"text", {"no numpy", "is not what numpy.save writes"}},
      {"float", {npy_of("<f4", "(2,)", two), "values of type <f4"}},
      {"big", {npy_of(">u2", "(4,)", two), "values of type >u2"}},
      {"columns", {npy_of("<u2", "(2, 2)", two, "True"), "column by column"}},
      {"cube", {npy_of("<u2", "(1, 2, 2)", two), "more than two dimensions"}},
      {"scalar", {npy_of("<u2", "()", two), "has no dimension"}},
      {"short", {npy_of("<u2", "(5,)", two), "its header says another number of values"}},
      {"long", {npy_of("<u2", "(3,)", two), "its header says another number of values"}},
      {"huge", {npy_of("<u2", "(18446744073709551615, 2)", two), "too large to be true"}},
      {"wide", {npy_of("<u2", "(2, 2)", two), "has rows of 2 tokens, samples have 3"}},
      {"large",
       {npy_of("<i8", "(3,)", bytes_of<std::int64_t>({1, 70'000, 2})),
        "token 1 is 70000, the vocabulary has 70000 (at byte 136"}},
      {"negative", {npy_of("<i2", "(3,)", bytes_of<std::int16_t>({1, 2, -1})), "token 2 is -1"}},
      {"unsigned", {npy_of("<u8", "(3,)", bytes_of<std::uint64_t>({1, 2, UINT64_MAX})), "token 2 is -1"}},
  };
  for (const auto& [name, row] : rows) {
    write(name + ".npy", row.first);
    const auto error = error_of({.kind = "tokens"}, of_tokens, name + ".npy");
    EXPECT_THAT(error, HasSubstr(row.second)) << name;
    EXPECT_THAT(error, HasSubstr((folder / (name + ".npy")).string())) << name;
  }
  const auto whole = npy_of("<u2", "(4,)", two);
  for (std::size_t n = 0; n < whole.size(); ++n)
    EXPECT_THROW(parse_npy(std::as_bytes(std::span(whole).first(n)), n), std::runtime_error) << n;
}

// given: NumPy's files as text, alone and beside text / expected: refused with what reads them
TEST_F(formats, numpy_files_are_no_text) {
  const model_specification bytes{.sequence = 2, .vocabulary = 256};
  write("a.txt", "some text of the user");
  write("b.npy", npy_of("<u2", "(4,)", bytes_of<std::uint16_t>({1, 2, 3, 4})));
  for (const auto* place : {"b.npy", ""}) {
    const auto error = error_of({.kind = "text"}, bytes, place);
    EXPECT_THAT(error, HasSubstr((folder / "b.npy").string()));
    EXPECT_THAT(error, HasSubstr("is a file of NumPy, no text: data.kind = \"tokens\" reads"));
  }
}

// --- columns

std::string layout(const std::string& inputs, const std::string& targets, int samples) {
  return R"({"format": "parcae.samples", "version": 1, "samples": )" + std::to_string(samples) + ", \"inputs\": [" +
         inputs + "], \"targets\": " + targets + "}";
}

std::string column_of(const std::string& name, const std::string& type, const std::string& shape) {
  return R"({"name": ")" + name + R"(", "type": ")" + type + R"(", "shape": [)" + shape + "]}";
}

TEST_F(formats, columns_are_samples_of_fixed_length) {
  const model_specification model{.sequence = 3, .vocabulary = 1000};
  write("samples.json", layout(column_of("input_ids", "uint16", "3"), column_of("labels", "int32", "3"), 2));
  std::string all;
  for (const int i : {0, 100})
    all +=
        bytes_of<std::uint16_t>({static_cast<std::uint16_t>(i + 1), 2, 3}) + bytes_of<std::int32_t>({i + 4, -100, 999});
  write("samples.bin", all);
  const auto data = load({.kind = "columns"}, model);
  ASSERT_EQ(data->size(), 2u);
  EXPECT_EQ(sample(*data, 1, 3, 3), std::pair(values{101, 2, 3}, values{104, -100, 999}));
}

TEST_F(formats, wrong_columns_are_refused) {
  const model_specification model{.sequence = 1, .vocabulary = 10};
  const auto ids = column_of("input_ids", "uint8", "1"), labels = column_of("labels", "int32", "1");
  const std::string good = std::string("\x05", 1) + bytes_of<std::int32_t>({3});
  struct row {
    std::string json, bytes, says;
  };
  for (const auto& [json, bytes, says] : std::vector<row>{
           {"{", good, "is no JSON object"},
           {"{}", good, "lacks \"format\""},
           {layout("", labels, 1), good, "no list of 1 to 100 inputs"},
           {layout(column_of("input_ids", "float32", "1"), labels, 1), good, "of no known type"},
           {layout(column_of("input_ids", "uint8", "0"), labels, 1), good, "must be a whole number from 1"},
           {layout(column_of("input_ids", "uint8", "99999999, 99999999, 99999999"), labels, 1), good, "more than"},
           {layout(ids, labels, 0), good, "\"samples\" must be"},
           {layout(ids, labels, 2), good, "has 5 bytes; samples.json says 2 samples of 5"},
           {layout(ids, labels, 1), good + "x", "has 6 bytes"},
           {layout(column_of("input_ids", "uint8", "5"), column_of("labels", "uint8", "1"), 1), good + "x",
            "of shape [5], the model takes [1]"},
           {layout(ids, column_of("labels", "uint16", "2"), 1), good, "its column labels has 2 values"},
           {layout(ids + ", " + column_of("mask", "uint8", "1"), labels, 1), good + "x",
            "has a column mask that the model does not take"},
           {layout(ids, labels, 1), std::string("\x0a", 1) + bytes_of<std::int32_t>({3}),
            "sample 0 (at byte 0) has in input_ids the value 10"},
           {layout(ids, labels, 2), good + "\x01" + bytes_of<std::int32_t>({-1}),
            "sample 1 (at byte 5) has in labels the value -1"},
       }) {
    write("samples.json", json);
    write("samples.bin", bytes);
    EXPECT_THAT(error_of({.kind = "columns"}, model), HasSubstr(says));
  }
  std::filesystem::remove(folder / "samples.bin");
  EXPECT_THAT(error_of({.kind = "columns"}, model), HasSubstr("has no samples.json and samples.bin"));
}

// given: a samples.json of 3 GiB, nearly all holes / expected: refused before it is read: the memory is not taken
TEST_F(formats, a_file_with_holes_takes_no_memory) {
  const auto peak_kib = [] {
    rusage x{};
    getrusage(RUSAGE_SELF, &x);
    return x.ru_maxrss;
  };
  write("samples.json", "{");
  write("samples.bin", "x");
  std::filesystem::resize_file(folder / "samples.json", std::uintmax_t{3} << 30);
  const auto before = peak_kib();
  EXPECT_THAT(error_of({.kind = "columns"}, {.sequence = 1, .vocabulary = 10}), HasSubstr("has more than 65536 bytes"));
  EXPECT_LT(peak_kib() - before, 256 << 10);
}

// --- folders of images

const model_specification of_images{.kind = "resnet", .image = 8, .channels = 3, .classes = 3};

/// 16×12, of one colour but for a white column at the left.
std::string coloured(std::uint8_t red, std::uint8_t green, std::uint8_t blue) {
  std::vector<std::uint8_t> rows;
  for (int y = 0; y < 12; ++y)
    for (int x = 0; x < 16; ++x)
      for (auto c : {red, green, blue})
        rows.push_back(x < 4 ? 255 : c);
  return png_of(16, 12, PNG_COLOR_TYPE_RGB, 8, rows);
}

TEST_F(formats, labels_are_the_sorted_folders) {
  write("b b/deep/x.PNG", coloured(0, 255, 0));
  write("b/1.png", coloured(255, 0, 0));
  write("c/2.jpeg", jpeg_of(4, 4, JCS_RGB, std::vector<std::uint8_t>(48, 30)));
  write("c/readme.txt", "not an image");
  write("top.png", "in no folder");
  const auto data = load({.kind = "image_folder"}, of_images);
  ASSERT_EQ(data->size(), 3u);
  std::map<std::int64_t, std::int64_t> centre; // red and green, by label
  for (std::uint64_t i = 0; i < 3; ++i) {
    const auto [pixels, label] = sample(*data, i, 192, 1);
    centre[label[0]] = pixels[4 * 8 + 6] * 1000 + pixels[64 + 4 * 8 + 6];
    values again(1);
    data->read(i, {}, again);
    EXPECT_EQ(again, label);
  }
  EXPECT_EQ(centre[0], 255'000); // "b"
  EXPECT_EQ(centre[1], 255);     // "b b"
  EXPECT_NEAR(static_cast<double>(centre[2]), 30'030, 2'002);
}

// given: sixty images in three folders / expected: the last ones, for validation, are of all labels
TEST_F(formats, validation_images_are_of_all_labels) {
  for (int i = 0; i < 60; ++i)
    write(std::string(1, static_cast<char>('a' + i / 20)) + "/" + std::to_string(i) + ".png", coloured(1, 2, 3));
  const auto data = load({.kind = "image_folder"}, of_images);
  std::set<std::int64_t> labels;
  for (std::uint64_t i = 48; i < 60; ++i)
    labels.insert(sample(*data, i, 192, 1).second[0]);
  EXPECT_THAT(labels, ElementsAre(0, 1, 2));
}

TEST_F(formats, augmented_images_follow_from_the_seed) {
  write("a/1.png", coloured(200, 100, 50));
  for (const auto* augment : {"none", "crop", "shift"}) {
    const auto data = load({.kind = "image_folder", .augment = augment, .flip = true}, of_images);
    std::set<values> seen;
    const auto plain = sample(*data, 0, 192, 1).first;
    auto mirrored = plain;
    for (auto row = mirrored.begin(); row != mirrored.end(); row += 8)
      std::reverse(row, row + 8);
    int flips = 0;
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
      values pixels(192), again(192), label(1);
      data->read_augmented(0, seed, pixels, label);
      data->read_augmented(0, seed, again, label);
      EXPECT_EQ(pixels, again);
      seen.insert(pixels);
      flips += pixels == mirrored;
    }
    EXPECT_EQ(sample(*data, 0, 192, 1).first, plain); // validation is not
    if (augment == std::string("none")) {
      EXPECT_EQ(seen, (std::set{plain, mirrored}));
      EXPECT_NEAR(flips, 100, 40);
    } else if (augment == std::string("shift")) {
      EXPECT_EQ(seen.size(), 18u); // -1, 0, 1 each way, mirrored or not
    } else {
      EXPECT_GT(seen.size(), 30u);
    }
  }
}

TEST_F(formats, wrong_image_folders_are_refused) {
  EXPECT_THAT(error_of({.kind = "image_folder"}, of_images), HasSubstr("has no images"));
  write("one.png", coloured(1, 2, 3));
  EXPECT_THAT(error_of({.kind = "image_folder"}, of_images, "one.png"), HasSubstr("has no images"));
  for (const auto* label : {"a", "b", "c", "d"})
    write(std::string(label) + "/1.png", coloured(1, 2, 3));
  EXPECT_THAT(error_of({.kind = "image_folder"}, of_images), HasSubstr("has 4 folders with images, the model has 3"));
  std::filesystem::remove_all(folder / "d");
  write("c/1.png", "GIF89a");
  const auto data = load({.kind = "image_folder"}, of_images);
  std::string error;
  for (std::uint64_t i = 0; i < 3; ++i)
    try {
      sample(*data, i, 192, 1);
    } catch (const sample_error& e) {
      error = e.what();
    }
  EXPECT_EQ(error, "data " + (folder / "c/1.png").string() + ": is neither JPEG nor PNG");
}

// --- several sources

// given: two sources of 10 and 20 samples, weights 1 and 3, 2 of each for validation / expected: of each 4 samples one
// is of the first, each source is seen whole before any sample comes again, never what is for validation; that comes
// source by source
TEST_F(formats, sources_are_mixed_by_their_weights) {
  std::string first, second; // a token says which sample begins with it
  for (char c = 0; c <= 20; ++c) {
    if (c <= 10)
      first += c;
    second += static_cast<char>(100 + c);
  }
  write("first", first);
  write("second", second);
  job_specification job;
  job.seed = 7;
  job.model = {.sequence = 1};
  job.data = {.validation = 2, .source = {{(folder / "first").string(), 1}, {(folder / "second").string(), 3}}};
  const auto data = load_dataset(job.data, job.model);
  EXPECT_EQ(data->size(), 30u);
  EXPECT_THAT(data->sizes(), ElementsAre(10, 20));
  sample_source samples(job, data);
  values input(1), target(1);
  std::vector<std::int64_t> of_first, of_second;
  std::set<std::vector<bool>> patterns;
  for (std::uint64_t cycle = 0; cycle < 24; ++cycle) {
    std::vector<bool> pattern;
    for (std::uint64_t i = 0; i < 4; ++i) {
      samples.training(4 * cycle + i, input, target);
      pattern.push_back(input[0] < 100);
      (input[0] < 100 ? of_first : of_second).push_back(input[0]);
    }
    EXPECT_EQ(std::ranges::count(pattern, true), 1);
    patterns.insert(pattern);
  }
  EXPECT_EQ(patterns.size(), 4u);
  ASSERT_EQ(of_first.size(), 24u);
  EXPECT_EQ((std::set<std::int64_t>(of_first.begin(), of_first.begin() + 8)),
            (std::set<std::int64_t>{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(std::set<std::int64_t>(of_second.begin(), of_second.begin() + 18).size(), 18u);
  EXPECT_LT(std::ranges::max(of_second), 118);
  sample_source fresh(job, data); // in any order
  for (const std::uint64_t number : {95u, 3u, 50u}) {
    values other(1);
    samples.training(number, input, target);
    fresh.training(number, other, target);
    EXPECT_EQ(other, input);
  }
  values validation;
  for (std::uint64_t i = 0; i < job.data.validation_samples(); ++i) {
    samples.validation(i, input, target);
    validation.push_back(input[0]);
  }
  EXPECT_EQ(validation, (values{8, 9, 118, 119}));
  auto other = job.data;
  std::swap(other.source[0].path, other.source[1].path);
  EXPECT_NE(load_dataset(other, job.model)->digest(), data->digest());
}

} // namespace
} // namespace parcae
