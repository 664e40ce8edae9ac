// Checkpoints on disk: what is read is what was written, or an error that names it.

#include "gpu/checkpoint/safetensors.hpp"
#include "gpu/keeper/checkpoint_store.hpp"
#include "tests/gpu/keeper/checkpoint_folder.hpp"
#include "tests/support/names.hpp"
#include "tests/support/small_disk.hpp"

#include <sys/stat.h>

#include <cstring>
#include <future>

namespace parcae {
namespace {

constexpr std::chrono::seconds patience{20};

// given: shares of two keepers, one layer in both / expected: all is read back, with job, version, result and data
TEST_F(checkpoint_folder_test, is_read_as_it_was_written) {
  write(folder / "20@3", "k1", {0, 1});
  EXPECT_THAT(checkpoint_reader({place(folder / "20@3")}).missing(), ElementsAre(2u));
  write(folder / "20@3", "k2", {1, 2});
  checkpoint_reader reader({place(folder / "20@3")});
  EXPECT_THAT(reader.layers(), ElementsAre(0u, 1u, 2u));
  EXPECT_THAT(reader.missing(), IsEmpty());
  EXPECT_EQ(reader.manifest().at, (version{20, {3}}));
  EXPECT_EQ(reader.manifest().result.loss, 2.5);
  EXPECT_EQ(reader.manifest().data_digest, "digest of the data");
  EXPECT_EQ(reader.manifest().specification.model, job().model);
  for (std::uint32_t layer = 0; layer < 3; ++layer)
    EXPECT_TRUE(reader.read(layer).parts == shard_of(layer, {20, {3}})->parts) << layer;
}

// given: every byte of a manifest flipped, and every tenth of the tensors' file / expected: an error that names the
// file
TEST_F(checkpoint_folder_test, no_flipped_byte_is_overlooked) {
  write(folder, "k", {2});
  const auto manifest = content(folder / "k.manifest"), tensors = content(folder / "k.safetensors");
  ASSERT_EQ(error_of(folder), "");
  for (std::size_t i = 0; i < manifest.size(); ++i) {
    auto bad = manifest;
    bad[i] = static_cast<char>(bad[i] ^ 4);
    put(folder / "k.manifest", bad);
    ASSERT_THAT(error_of(folder), HasSubstr("k.manifest")) << i;
  }
  put(folder / "k.manifest", manifest);
  std::uint64_t header = 0;
  std::memcpy(&header, tensors.data(), sizeof header);
  const auto in_metadata = tensors.find("\"steps\""); // its values are for people
  for (std::size_t i = 0; i < tensors.size(); i += 10) {
    if (i + 1 >= header || (i > 8 && i < in_metadata + 20))
      continue;
    auto bad = tensors;
    bad[i] = static_cast<char>(bad[i] ^ 4);
    put(folder / "k.safetensors", bad);
    ASSERT_THAT(error_of(folder), HasSubstr("k.safetensors")) << i;
  }
  for (std::size_t i = sizeof header + header; i < tensors.size(); i += 101) {
    auto bad = tensors;
    bad[i] = static_cast<char>(bad[i] ^ 4);
    put(folder / "k.safetensors", bad);
    ASSERT_THAT(error_of(folder), HasSubstr("the checksum of layer 2 is wrong")) << i;
  }
}

// given: nothing, a cut file, no tensors, shares of two versions, a manifest of another folder / expected: told by name
TEST_F(checkpoint_folder_test, what_is_missing_is_told) {
  EXPECT_THAT(error_of(folder), HasSubstr("no checkpoint at " + folder.string()));
  EXPECT_THAT(error_of(folder / "none"), HasSubstr("no checkpoint at"));
  write(folder, "k", {0, 1, 2});
  const auto tensors = content(folder / "k.safetensors");
  for (std::size_t size : {std::size_t{0}, std::size_t{7}, std::size_t{100}, tensors.size() - 1}) {
    put(folder / "k.safetensors", tensors.substr(0, size));
    EXPECT_THAT(error_of(folder), HasSubstr("k.safetensors")) << size;
  }
  std::filesystem::remove(folder / "k.safetensors");
  EXPECT_THAT(error_of(folder), HasSubstr("k.safetensors cannot be opened"));
  write(folder, "k", {0, 1, 2});
  write(folder, "l", {0}, {30, {3}});
  EXPECT_THAT(error_of(folder), HasSubstr("l.manifest is of version 30@3, another is of 20@3"));
}

// given: pipes, which nobody writes to, in a checkpoint's folder / expected: named at once, not waited for
TEST_F(checkpoint_folder_test, pipes_are_named) {
  write(folder, "k", {0, 1, 2});
  const auto tensors = content(folder / "k.safetensors");
  std::filesystem::remove(folder / "k.safetensors");
  ASSERT_EQ(mkfifo((folder / "k.safetensors").c_str(), 0600), 0);
  EXPECT_EQ(error_of(folder), (folder / "k.safetensors").string() + " is no regular file");
  std::filesystem::remove(folder / "k.safetensors");
  put(folder / "k.safetensors", tensors);
  EXPECT_EQ(error_of(folder), "");
  ASSERT_EQ(mkfifo((folder / "l.manifest").c_str(), 0600), 0);
  EXPECT_EQ(error_of(folder), (folder / "l.manifest").string() + " is no regular file");
  EXPECT_THROW(find_checkpoint(place(folder / "l.manifest")), checkpoint_error);
  checkpoint_store store(folder, "k");
  std::promise<restored> answer;
  store.read(
      {{1}, {20, {0}}, folder.string(), job()}, [](const commit_result&, const shard_bytes&) {},
      [&](restored x) { answer.set_value(std::move(x)); });
  auto result = answer.get_future();
  ASSERT_EQ(result.wait_for(patience), std::future_status::ready);
  EXPECT_THAT(result.get().problem, HasSubstr("l.manifest is no regular file"));
}

// given: a process that lets all read what it makes / expected: checkpoints and the folders made for them are its
// owner's alone; what people ask for by name is as they have set it
TEST_F(checkpoint_folder_test, others_cannot_read_checkpoints) {
  const auto before = umask(0);
  write(folder / "state/job/20@3", "k", {0, 1, 2});
  checkpoint_reader reader({place(folder / "state/job/20@3")});
  export_parameters(reader, folder / "exports/all.safetensors");
  umask(before);
  const auto mode = [&](const std::filesystem::path& of) {
    struct stat x {};
    EXPECT_EQ(stat((folder / of).c_str(), &x), 0) << of;
    return x.st_mode & 07777;
  };
  for (const auto* made : {"state", "state/job", "state/job/20@3"})
    EXPECT_EQ(mode(made), 0700u) << made;
  for (const auto* file : {"state/job/20@3/k.manifest", "state/job/20@3/k.safetensors"})
    EXPECT_EQ(mode(file), 0600u) << file;
  EXPECT_EQ(mode("exports"), 0777u);
  EXPECT_EQ(mode("exports/all.safetensors"), 0666u);
}

// given: a disk that hangs, and checkpoints to be written one after the other / expected: only the shards of the newest
// are kept, the others are answered as given up, but for one of the same version; the newest is written
TEST_F(checkpoint_folder_test, a_hanging_disk_holds_one_version) {
  checkpoint_store store(folder, "k");
  std::promise<void> hanging, goes_on;
  store.read(
      {{1}, {20, {0}}, "/no/such/folder", job()}, [](const commit_result&, const shard_bytes&) {},
      [&](const restored&) {
        hanging.set_value();
        goes_on.get_future().wait();
      });
  hanging.get_future().wait();
  std::mutex mutex;
  std::vector<checkpointed> answers;
  std::promise<void> written;
  const auto write_at = [&](std::uint64_t steps) {
    const version at{steps, {1}};
    auto shard = shard_of(1, at);
    std::weak_ptr<const shard_bytes> watched = shard;
    store.write({{1}, at, "text-1/" + to_string(at), job(), "digest", {}}, {std::move(shard)}, {}, [&](checkpointed x) {
      std::lock_guard lock(mutex);
      answers.push_back(std::move(x));
      if (answers.back().problem.empty())
        written.set_value();
    });
    return watched;
  };
  const auto first = write_at(10), second = write_at(20);
  EXPECT_TRUE(first.expired());
  const auto again = write_at(20);
  EXPECT_TRUE(second.expired());
  EXPECT_FALSE(again.expired());
  const auto third = write_at(30);
  EXPECT_TRUE(again.expired());
  EXPECT_FALSE(third.expired());
  goes_on.set_value();
  ASSERT_EQ(written.get_future().wait_for(patience), std::future_status::ready);
  std::lock_guard lock(mutex);
  ASSERT_EQ(answers.size(), 3u);
  EXPECT_EQ(answers[0].at.steps, 10u);
  EXPECT_EQ(answers[1].at.steps, 20u);
  for (int i : {0, 1})
    EXPECT_THAT(answers[i].problem, HasSubstr("waited for the disk"));
  EXPECT_EQ(answers[2].at.steps, 30u);
  EXPECT_TRUE(std::filesystem::exists(folder / "text-1/30@1/k.manifest"));
  EXPECT_FALSE(std::filesystem::exists(folder / "text-1/20@1"));
}

// given: checkpoints of one job, an incomplete and a damaged newer one / expected: the newest that is complete
TEST_F(checkpoint_folder_test, the_newest_complete_one_is_found) {
  EXPECT_THROW(find_checkpoint(place(folder)), checkpoint_error);
  write(folder / "9@1", "k", {0, 1, 2}, {9, {1}});
  write(folder / "20@3", "k", {0, 1, 2});
  write(folder / "30@3", "k", {0, 1}, {30, {3}});
  write(folder / "40@3", "k", {0, 1, 2}, {40, {3}});
  put(folder / "40@3" / "k.manifest", "damaged by somebody");
  EXPECT_EQ(find_checkpoint(place(folder))->place(), folder / "20@3");
  EXPECT_EQ(find_checkpoint(place(folder / "9@1"))->place(), folder / "9@1");
  std::filesystem::remove_all(folder / "9@1");
  std::filesystem::remove_all(folder / "20@3");
  EXPECT_EQ(find_checkpoint(place(folder))->place(), folder / "30@3") << "other keepers may have the rest";
}

// given: two keepers' shares in folders of their own / expected: read as one checkpoint
TEST_F(checkpoint_folder_test, shares_may_be_in_several_folders) {
  write(folder / "a/20@3", "k", {0, 2});
  write(folder / "b/20@3", "l", {1});
  checkpoint_reader reader({place(folder / "a/20@3"), place(folder / "b/20@3")});
  EXPECT_THAT(reader.missing(), IsEmpty());
  EXPECT_EQ(reader.read(1).at, (version{20, {3}}));
  write(folder / "c/30@3", "l", {1}, {30, {3}});
  EXPECT_THROW(checkpoint_reader({place(folder / "a/20@3"), place(folder / "c/30@3")}), checkpoint_error);
}

// given: a tied gpt / expected: one file with its parameters, the second of the tied pair in the metadata only; an
// incomplete checkpoint is refused by the numbers of the layers
TEST_F(checkpoint_folder_test, is_exported) {
  write(folder / "c", "k", {0, 2});
  {
    checkpoint_reader incomplete({place(folder / "c")});
    EXPECT_THROW(export_parameters(incomplete, folder / "out"), checkpoint_error);
  }
  write(folder / "c", "l", {1});
  checkpoint_reader reader({place(folder / "c")});
  export_parameters(reader, folder / "out");
  safetensors_file file(folder / "out");
  EXPECT_THAT(file.metadata(),
              ElementsAre(std::pair("format", "pt"), std::pair("lm_head.weight", "transformer.wte.weight")));
  EXPECT_THROW(file.size_of("lm_head.weight"), std::runtime_error);
  std::vector<std::byte> values(256 * 8 * sizeof(float));
  file.read({"transformer.wte.weight", {256, 8}}, values.data());
  EXPECT_EQ(std::memcmp(values.data(), shard_of(0, {20, {3}})->parts[0].data(), values.size()), 0);
}

// given: a resnet / expected: running statistics are written, read and exported under PyTorch's names, moments not
// exported
TEST_F(checkpoint_folder_test, has_running_statistics) {
  auto of = job();
  of.model = {.kind = "resnet", .layers = 8, .width = 4, .image = 16};
  of.data.kind = "images";
  const auto model = describe(of.model);
  std::vector<std::uint32_t> all;
  for (std::uint32_t layer = 0; layer < model.layers.size(); ++layer)
    all.push_back(layer);
  const version at{20, {3}};
  write(folder / "c", "k", all, at, of);
  checkpoint_reader reader({place(folder / "c")});
  for (auto layer : all)
    EXPECT_TRUE(reader.read(layer).parts == shard_of(layer, at, of)->parts) << layer;
  export_parameters(reader, folder / "out");
  safetensors_file file(folder / "out");
  const auto& first = model.layers.at(0);
  const auto expected = shard_of(0, at, of)->parts.back();
  std::size_t offset = 0;
  for (const auto& tensor : first.buffers) {
    std::vector<std::byte> values(tensor.values() * sizeof(float));
    file.read({tensor.name, tensor.shape}, values.data());
    EXPECT_EQ(std::memcmp(values.data(), expected.data() + offset, values.size()), 0) << tensor.name;
    EXPECT_THAT(tensor.name, testing::MatchesRegex(".*running_(mean|var)"));
    offset += values.size();
  }
  EXPECT_GT(offset, 0u);
  EXPECT_THROW(file.size_of(first.tensors.at(0).name + ".exp_avg"), std::runtime_error);
}

// given: a keeper that lets jobs use one folder besides its own / expected: checkpoints that a job wants elsewhere are
// not written, whatever the path looks like, nor through a server of this machine; what is elsewhere is not read; what
// is below the two, is
TEST_F(checkpoint_folder_test, jobs_write_only_where_they_may) {
  const auto ours = folder / "ours", state = folder / "state", elsewhere = folder / "elsewhere";
  std::filesystem::create_directories(ours);
  std::filesystem::create_directories(elsewhere);
  std::filesystem::create_directory_symlink(elsewhere, ours / "link");
  checkpoint_store store(state, "k", {ours, "s3://ours/runs"}, store_pace{.attempts = 1});
  const auto problem_at = [&](const std::filesystem::path& to, const std::string& endpoint = {}) {
    auto of = job();
    of.checkpoint.to = to;
    of.checkpoint.endpoint = endpoint;
    std::promise<checkpointed> answer;
    store.write({{1}, {5, {1}}, "text-1/5@1", of, "digest of the data", {}}, {shard_of(1, {5, {1}})}, {},
                [&](checkpointed x) { answer.set_value(std::move(x)); });
    return answer.get_future().get().problem;
  };
  for (const auto& bad : {elsewhere, ours / "../elsewhere", ours / "link", folder / "ours2"})
    EXPECT_THAT(problem_at(bad), HasSubstr("is not below what this node lets jobs use: --data " + ours.string()));
  EXPECT_THAT(problem_at("s3://theirs/runs"), HasSubstr("s3://theirs/runs is not below"));
  ::setenv("AWS_ACCESS_KEY_ID", "k", 1);
  ::setenv("AWS_SECRET_ACCESS_KEY", "s", 1);
  EXPECT_THAT(problem_at("s3://ours/runs/x", "http://127.0.0.1:1"), HasSubstr("is this machine, or on its link"));
  EXPECT_TRUE(std::filesystem::is_empty(elsewhere));
  EXPECT_EQ(problem_at(ours / "new"), "");
  EXPECT_EQ(problem_at(state), "");

  const auto read_from = [&](const std::filesystem::path& from) {
    std::promise<restored> answer;
    store.read(
        {{1}, {5, {1}}, from, job()}, [](const commit_result&, const shard_bytes&) {},
        [&](restored x) { answer.set_value(std::move(x)); });
    return answer.get_future().get();
  };
  write(elsewhere / "other-1/5@1", "l", {0}, {5, {1}});
  const auto refused = read_from(elsewhere / "other-1/5@1");
  EXPECT_THAT(refused.problem, HasSubstr("elsewhere it may not look"));
  EXPECT_FALSE(refused.damaged || refused.passing);
  EXPECT_EQ(read_from(ours / "new/text-1/5@1").problem, "");
  EXPECT_EQ(read_from(elsewhere / "text-1/5@1").problem, "") << "its own folder has one of that name";
}

/// What the store says of this version of two layers, once it is done with it.
checkpointed wrote(checkpoint_store& store, version at, const std::vector<std::uint64_t>& kept,
                   const job_specification& of = job()) {
  std::promise<checkpointed> answer;
  store.write({{1}, at, "text-1/" + to_string(at), of, "digest of the data", kept},
              {shard_of(1, at, of), shard_of(2, at, of)}, {}, [&](checkpointed x) { answer.set_value(std::move(x)); });
  return answer.get_future().get();
}

// given: a disk with room for a small model and not for a large one / expected: it is said that there is none; what was
// there stays, of the large one nothing is left, and the next small one has room
TEST_F(checkpoint_folder_test, a_disk_without_room_leaves_what_was) {
  const small_disk disk(folder / "state", 4 << 20);
  if (!disk.problem().empty())
    GTEST_SKIP() << disk.problem();
  checkpoint_store store(folder / "state", "k");
  EXPECT_EQ(wrote(store, {5, {1}}, {}).problem, "");
  const auto full = wrote(store, {10, {1}}, {5}, large_job());
  EXPECT_THAT(full.problem, HasSubstr("No space left on device"));
  EXPECT_THAT(full.problem, HasSubstr((folder / "state/text-1/10@1").string()));
  EXPECT_THAT(full.layers, IsEmpty());
  EXPECT_TRUE(std::filesystem::exists(folder / "state/text-1/5@1/k.manifest"));
  const auto left = folder / "state/text-1/10@1";
  EXPECT_TRUE(!std::filesystem::exists(left) || std::filesystem::is_empty(left));
  EXPECT_EQ(wrote(store, {15, {1}}, {5}).problem, "");
  EXPECT_TRUE(std::filesystem::exists(folder / "state/text-1/15@1/k.manifest"));
}

// given: a keeper's disk / expected: what it writes can be read, also from its own folder after that was moved; older
// checkpoints go, those of others stay; another model, step or no folder are told
TEST_F(checkpoint_folder_test, the_store_writes_reads_and_tidies_up) {
  std::vector<std::uint32_t> arrived;
  const auto has_read = [&](checkpoint_store& store, const std::string& from, std::uint64_t steps,
                            const job_specification& of) {
    std::promise<restored> answer;
    arrived.clear();
    store.read(
        {{1}, {steps, {0}}, from, of},
        [&](const commit_result&, shard_bytes x) {
          EXPECT_EQ(x.at, (version{steps, {0}}));
          arrived.push_back(x.layer);
        },
        [&](restored x) { answer.set_value(std::move(x)); });
    auto result = answer.get_future();
    EXPECT_EQ(result.wait_for(patience), std::future_status::ready);
    return result.get();
  };
  checkpoint_store store(folder / "state", "k");
  write(folder / "state/text-1/5@1", "other", {0}, {5, {1}});
  for (std::uint64_t steps : {5, 10, 15})
    EXPECT_EQ(wrote(store, {steps, {1}}, steps == 15 ? std::vector<std::uint64_t>{10} : std::vector<std::uint64_t>{5})
                  .problem,
              "");
  const auto last = wrote(store, {20, {1}}, {15});
  EXPECT_EQ(last.folder, folder / "state/text-1/20@1");
  EXPECT_THAT(last.layers, ElementsAre(1u, 2u));
  EXPECT_FALSE(std::filesystem::exists(folder / "state/text-1/10@1"));
  EXPECT_TRUE(std::filesystem::exists(folder / "state/text-1/15@1/k.manifest"));
  EXPECT_TRUE(std::filesystem::exists(folder / "state/text-1/5@1/other.manifest"));
  EXPECT_FALSE(std::filesystem::exists(folder / "state/text-1/5@1/k.manifest"));

  EXPECT_EQ(has_read(store, last.folder, 20, job()).problem, "");
  EXPECT_THAT(arrived, ElementsAre(1u, 2u));
  std::filesystem::rename(folder / "state", folder / "moved");
  checkpoint_store moved(folder / "moved", "k");
  EXPECT_EQ(has_read(moved, last.folder, 20, job()).problem, "");
  EXPECT_THAT(arrived, ElementsAre(1u, 2u));
  write(folder / "theirs/text-1/20@1", "l", {0}, {20, {1}});
  EXPECT_EQ(has_read(moved, folder / "theirs/text-1/20@1", 20, job()).problem, "");
  EXPECT_THAT(arrived, ElementsAre(0u, 1u, 2u)) << "another keeper's share, and its own";
  auto answer = has_read(moved, "/no/such/folder", 20, job());
  EXPECT_THAT(answer.problem, HasSubstr("k has no checkpoint /no/such/folder"));
  EXPECT_FALSE(answer.damaged);
  auto other = job();
  other.model.width = 16;
  EXPECT_THAT(has_read(moved, last.folder, 20, other).problem, HasSubstr("of another step, model or optimizer"));
  EXPECT_TRUE(has_read(moved, last.folder, 19, job()).damaged);
  auto bytes = content(folder / "moved/text-1/20@1/k.safetensors");
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  put(folder / "moved/text-1/20@1/k.safetensors", bytes);
  answer = has_read(moved, last.folder, 20, job());
  EXPECT_TRUE(answer.damaged);
  EXPECT_THAT(answer.problem, HasSubstr("the checksum of layer 2 is wrong"));
  EXPECT_THAT(arrived, ElementsAre(1u)) << "the other layer is good";
  // given: a disk that is full, parts of an earlier attempt / expected: nothing is left of this share; what is newer
  // stays
  write(folder / "moved/text-1/40@1", "k", {0}, {40, {1}});
  write(folder / "moved/text-1/30@1", "other", {0}, {30, {1}});
  put(folder / "moved/text-1/30@1/k.safetensors.partial-1-1", "of a process that was killed");
  const auto full = [&] {
    const full_disk disk;
    return wrote(moved, {30, {1}}, {15});
  }();
  EXPECT_THAT(full.problem, HasSubstr("cannot write"));
  EXPECT_THAT(full.layers, IsEmpty());
  EXPECT_TRUE(std::filesystem::exists(folder / "moved/text-1/40@1/k.manifest"));
  for (const auto& x : std::filesystem::directory_iterator(folder / "moved/text-1/30@1"))
    EXPECT_THAT(x.path().filename().string(), testing::StartsWith("other."));
  put(folder / "file", "");
  checkpoint_store nowhere(folder / "file", "k");
  EXPECT_THAT(wrote(nowhere, {5, {1}}, {}).problem, HasSubstr((folder / "file").string()));
}

// given / expected: numbers of layers as they stand in messages
TEST(checkpoint, layers_are_listed) {
  EXPECT_EQ(list_of({}), "");
  EXPECT_EQ(list_of({3}), "3");
  EXPECT_EQ(list_of({0, 1, 2, 5, 7, 8}), "0-2, 5, 7-8");
}

} // namespace
} // namespace parcae
