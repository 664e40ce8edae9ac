// The [data] section of job files.

#include "runtime/job/job_file.hpp"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace parcae {
namespace {

// given: a job on two sources, and one on images / expected: their keys arrive
TEST(job_data, keys_of_data_arrive) {
  const auto rest = std::string("[job]\nsteps = 5\n");
  const auto mixed = parse_job(rest + R"(
[data]
kind = "tokens"
token_bytes = 4
validation = 3
[[data.source]]
path = "/books"
weight = 7
[[data.source]]
path = "/code"
)",
                               "x.toml");
  EXPECT_EQ(mixed.data.token_bytes, 4u);
  EXPECT_EQ(mixed.data.source, (std::vector<data_source>{{"/books", 7}, {"/code", 1}}));
  EXPECT_EQ(mixed.data.validation_samples(), 6u);
  EXPECT_EQ(mixed.data.where(), "/books, /code");
  auto other = mixed;
  other.data.source[0].path = "/moved";
  EXPECT_TRUE(changed_keys(mixed, other, on_resume::fixed).empty());
  other.data.source[1].weight = 2;
  EXPECT_EQ(changed_keys(mixed, other, on_resume::fixed), std::vector<std::string>{"data.source (other weights)"});
  const auto images = parse_job(rest + R"(
[model]
kind = "resnet"
layers = 8
[data]
kind = "image_folder"
path = "/images"
resize = 40
augment = "shift"
flip = true
mean = [0, 0.5, 1.0]
deviation = [0.25, 0.25, 1]
)",
                                "x.toml");
  EXPECT_EQ(images.data.resize, 40u);
  EXPECT_EQ(images.data.augment, "shift");
  EXPECT_TRUE(images.data.flip);
  EXPECT_EQ(images.data.mean, (std::vector<double>{0, 0.5, 1}));
  EXPECT_EQ(images.data.deviation, (std::vector<double>{0.25, 0.25, 1}));
}

// given: [data] sections that are wrong / expected: the error names place and key
TEST(job_data, wrong_data_is_named) {
  const std::string
      text = "[job]\nsteps = 5\n[data]\n",
      image =
          "[job]\nsteps = 5\n[model]\nkind = \"resnet\"\nlayers = 8\n[data]\nkind = \"image_folder\"\npath = \"x\"\n";
  const std::pair<std::string, std::string> table[] = {
      {text + "source = 3", "x.toml:4:10: data.source must be a section with two brackets: [[data.source]]"},
      {text + "[[data.source]]\nweight = 2", "data.source.path must name a file or folder"},
      {text + "[[data.source]]\npath = \"a\"\nwieght = 2",
       "x.toml:6:1: \"wieght\" is not a key of [data.source]; did you mean \"weight\"?"},
      {text + "[[data.source]]\npath = \"a\"\nweight = 0", "data.source.weight is 0, must be from 1 to 10000"},
      {text + "[[data.source]]\npath = \"a\"\nweight = 0.5", "data.source.weight must be a whole number"},
      {text + "[[data.source]]\npath = \"a\"\nweight = 9000\n[[data.source]]\npath = \"b\"\nweight = 9000",
       "data.source.weight has a sum of 18000"},
      {text + "path = \"x\"\n[[data.source]]\npath = \"a\"", "data.path must be left out: there are [[data.source]]"},
      {text + "path = \"x\"\ntoken_bytes = 4", "data.token_bytes is for tokens, but data.kind is \"text\""},
      {text + "path = \"x\"\nmean = [0.5]", "data.mean must have a number for each of model.channels"},
      {image + "token_bytes = 4", "data.token_bytes is for tokens"},
      {"[job]\nsteps = 1\n[data]\npath = 'gs://bucket/text'",
       "x.toml:4:8: data.path is \"gs://bucket/text\"; URLs begin with s3:// or https:// (or http://, without "
       "encryption)"},
      {image + "resize = 31", "data.resize must be at least model.image"},
      {image + "augment = \"flip\"", "data.augment is \"flip\", must be one of"},
      {image + "mean = 0.5", "data.mean must be a list of numbers"},
      {image + "mean = [0.5, \"x\", 1]", "data.mean must be a number"},
      {image + "mean = [0.5, 2, 1]", "data.mean is of pixels from 0 to 1"},
      {image + "deviation = [0.5, 0, 1]", "data.deviation is of pixels from 0 to 1, and not 0"},
      {image + "deviation = [nan, 0.5, 1]", "data.deviation is of pixels from 0 to 1, and not 0"},
  };
  for (const auto& [file, error] : table)
    try {
      parse_job(file, "x.toml");
      ADD_FAILURE() << file << " was accepted";
    } catch (const job_file_error& e) {
      EXPECT_NE(std::string(e.what()).find(error), std::string::npos) << e.what() << " / " << error;
    }
}

} // namespace
} // namespace parcae
