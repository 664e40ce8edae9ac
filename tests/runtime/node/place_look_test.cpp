#include "runtime/node/place_look.hpp"
#include "tests/support/files.hpp"
#include "tests/support/names.hpp"
#include "tests/support/small_tokenizer.hpp"

#include <sys/stat.h>

#include <cstdlib>
#include <fstream>

namespace parcae {
namespace {

namespace fs = std::filesystem;

struct place_look : testing::Test {
  place_look() {
    fs::create_directories(folder / "data");
    std::ofstream(folder / "data" / "x") << "bytes";
    std::ofstream(folder / "data" / "empty");
    fs::create_directories(folder / "data" / "none");
    ::mkfifo((folder / "data" / "pipe").c_str(), 0600);
  }

  place_answer read(const std::string& what) {
    return look_at_places({{what}, "", "", ""}, role::worker, {folder / "data", "https://data.example/"});
  }

  own_folder folder;
};

// given: files and folders that are there or not, empty, none, not to be used; URLs / expected: what is wrong with
// which, what is not known; nothing waits for a pipe
TEST_F(place_look, reads) {
  for (const auto* good : {"data/x", "data"}) {
    EXPECT_THAT(read(folder / good).problems, IsEmpty()) << good;
    EXPECT_THAT(read(folder / good).unknown, IsEmpty()) << good;
  }
  EXPECT_THAT(read(folder / "data" / "y").problems, ElementsAre(HasSubstr("data/y is not there")));
  for (const auto* empty : {"data/empty", "data/none"})
    EXPECT_THAT(read(folder / empty).problems, ElementsAre(HasSubstr("has nothing in it"))) << empty;
  EXPECT_THAT(read(folder / "data" / "pipe").problems, ElementsAre(HasSubstr("is no regular file")));
  EXPECT_THAT(read("/etc/passwd").problems, ElementsAre(HasSubstr("is not below what this node lets jobs use")));
  EXPECT_THAT(read("https://other.example/x").problems, ElementsAre(HasSubstr("is not below what this node lets")));
  const auto url = read("https://data.example/x");
  EXPECT_THAT(url.problems, IsEmpty());
  EXPECT_THAT(url.unknown, ElementsAre("https://data.example/x is not asked for before the job begins"));
}

// given: tokenizers that a gateway is to read / expected: what is wrong with one that is missing, or not understood
TEST_F(place_look, reads_tokenizers) {
  std::ofstream(folder / "good.json") << boost::json::serialize(small_tokenizer());
  std::ofstream(folder / "bad.json") << "{}";
  const auto look = [&](const char* file) {
    return look_at_places({{folder / file}, "", "", ""}, role::gateway, {}).problems;
  };
  EXPECT_THAT(look("good.json"), IsEmpty());
  EXPECT_THAT(look("bad.json"), ElementsAre(HasSubstr("bad.json")));
  EXPECT_THAT(look("none.json"), ElementsAre(HasSubstr("none.json")));
}

// given: a keeper's places for checkpoints: none, a folder to come, one that is not allowed; a worker / expected:
// likewise; a worker writes nowhere
TEST_F(place_look, writes) {
  const auto write = [&](const std::string& to, role as = role::keeper) {
    return look_at_places({{"/nowhere"}, to, "", ""}, as, {folder});
  };
  EXPECT_THAT(write("").problems, IsEmpty());
  EXPECT_THAT(write("").unknown, IsEmpty());
  EXPECT_THAT(write(folder / "new").problems, IsEmpty());
  EXPECT_THAT(write(folder / "new").unknown, ElementsAre(HasSubstr("is found out with the first checkpoint")));
  EXPECT_FALSE(fs::exists(folder / "new"));
  EXPECT_THAT(write("/etc/x").problems, ElementsAre(HasSubstr("is not below what this node lets jobs use")));
  EXPECT_THAT(write("s3://bucket/x").problems, ElementsAre(HasSubstr("is not below what this node lets jobs use")));
  EXPECT_THAT(write("", role::worker).problems, ElementsAre(HasSubstr("/nowhere")));
}

// given: a place in a bucket, and an endpoint that is this machine / expected: the keeper asks nobody
TEST_F(place_look, a_jobs_endpoint_is_not_this_machine) {
  ::setenv("AWS_ACCESS_KEY_ID", "k", 1);
  ::setenv("AWS_SECRET_ACCESS_KEY", "s", 1);
  const auto x = look_at_places({{}, "s3://bucket/x", "http://127.0.0.1:1", "r"}, role::keeper, {"/", "s3://"});
  EXPECT_THAT(x.problems, ElementsAre(HasSubstr("is this machine, or on its link")));
}

} // namespace
} // namespace parcae
