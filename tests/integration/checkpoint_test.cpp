// What is on disk outlives all processes, and is what PyTorch users load.

#include "tests/support/cluster.hpp"

#include <csignal>
#include <cstdlib>

namespace parcae {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::IsEmpty;

// Prints the digest of the parameters as `status` computes it: SHA-256 of the layers' digests in hexadecimal, each of
// the layer's tensors one after the other. Tied tensors are looked up as safetensors.torch.load_model does.
constexpr auto digest_of_gpt = R"(
import hashlib, sys
from safetensors import safe_open
with safe_open(sys.argv[1], framework="np") as f:
    metadata, names = f.metadata(), set(f.keys())
    assert metadata["format"] == "pt", metadata
    assert metadata["lm_head.weight"] == "transformer.wte.weight", metadata
    assert "lm_head.weight" not in names
    get = lambda name: f.get_tensor(metadata.get(name, name))
    assert get("transformer.wte.weight").dtype == "float32"
    assert get("transformer.h.0.attn.c_attn.weight").shape == (48, 16)
    block = ["ln_1.weight", "ln_1.bias", "attn.c_attn.weight", "attn.c_attn.bias", "attn.c_proj.weight",
             "attn.c_proj.bias", "ln_2.weight", "ln_2.bias", "mlp.c_fc.weight", "mlp.c_fc.bias", "mlp.c_proj.weight",
             "mlp.c_proj.bias"]
    layers = [["transformer.wte.weight", "transformer.wpe.weight"]]
    layers += [["transformer.h.%d.%s" % (i, name) for name in block] for i in range(2)]
    layers += [["transformer.ln_f.weight", "transformer.ln_f.bias", "lm_head.weight"]]
    assert names == {name for layer in layers for name in layer} - {"lm_head.weight"}, names
    digests = [hashlib.sha256(b"".join(get(name).tobytes() for name in layer)).hexdigest() for layer in layers]
    print(hashlib.sha256("".join(digests).encode()).hexdigest())
)";

struct checkpoint : cluster_test {
  /// All of the cluster by SIGKILL; nobody can write a last word.
  void kill_all(const std::vector<std::string>& nodes) {
    for (const auto& name : nodes)
      cluster->node(name).signal(SIGKILL);
    cluster->manager().signal(SIGKILL);
    for (const auto& name : nodes)
      ASSERT_TRUE(cluster->node(name).wait(limit));
    ASSERT_TRUE(cluster->manager().wait(limit));
  }

  /// Of the safetensors library of PyPI, where deploy/setup put it; empty if it is not there.
  std::optional<std::string> digest_in(const std::filesystem::path& exported) {
    const auto* cache = std::getenv("PARCAE_CACHE");
    const auto* home = std::getenv("HOME");
    const auto packages = (cache ? std::string(cache) : std::string(home ? home : "") + "/.cache/parcae") + "/python";
    const std::vector<std::string> python{"/usr/bin/env", "PYTHONPATH=" + packages, "python3", "-c"};
    auto import = python;
    import.push_back("import safetensors, numpy");
    if (run_program(import).status != 0)
      return std::nullopt;
    auto load = python;
    load.insert(load.end(), {digest_of_gpt, exported.string()});
    auto x = run_program(load);
    EXPECT_EQ(x.status, 0) << x.error;
    return x.output.substr(0, x.output.find('\n'));
  }
};

// given: a job with checkpoints, exported while it runs; manager, keeper and workers are killed; a new cluster with
// another keeper's folder, and --resume of the folder of all its checkpoints / expected: it goes on from the newest
// one, and ends with the bits of an undisturbed run; what is exported has exactly these, under PyTorch's names
TEST_F(checkpoint, everything_is_killed_and_the_job_goes_on) {
  auto job = small_job(300);
  job.checkpoint_every = 20;
  job.min_depth = 2;
  cluster->start_keeper();
  cluster->start_node("a");
  cluster->start_node("b");
  auto id = cluster->client().submit(job);
  wait_for_job(id, "two checkpoints", [](const job_status& j) { return j.checkpoint_steps >= 40; });
  const auto exported = folder.path() / "running.safetensors";
  auto exporting = run({"export", std::to_string(id), "--output", exported});
  EXPECT_EQ(exporting.status, 0) << exporting.error;
  auto before = job_of(cluster->client().status(), id);
  ASSERT_EQ(before.state, "running");
  ASSERT_EQ(before.checkpoint_folders.size(), 1u);
  kill_all({"keeper", "a", "b"});
  const auto run_folder = std::filesystem::path(before.checkpoint_folders[0].folder).parent_path();

  start("second");
  cluster->start_keeper("other");
  cluster->start_node("c");
  cluster->start_node("d");
  auto resumed = run({"submit", "--resume", run_folder, "--wait"});
  EXPECT_EQ(resumed.status, 0) << resumed.error;
  auto end = job_of(cluster->client().status(), 1);
  EXPECT_EQ(end.steps_done, job.steps);
  EXPECT_EQ(end.checkpoint_steps, job.steps);
  ASSERT_GE(end.chain.size(), 2u);
  EXPECT_GE(end.chain[0].last, before.checkpoint_steps);
  EXPECT_EQ(end.chain[0].by, generation{});
  const auto final = folder.path() / "final.safetensors";
  exporting = run({"export", "1", "--output", final});
  EXPECT_EQ(exporting.status, 0) << exporting.error;

  job.min_depth = 1;
  auto reference = undisturbed(job);
  EXPECT_EQ(end.parameters_sha256, reference.parameters_sha256);
  auto digest = digest_in(final);
  if (!digest)
    GTEST_SKIP() << "python3 has no safetensors: run deploy/setup to have exported files read by it";
  EXPECT_EQ(*digest, reference.parameters_sha256);
  EXPECT_NE(digest_in(exported), std::string()) << "the running job's file is read as well";
}

// given: two keepers with a folder each, one copy of every layer; everything is killed, and new keepers have the
// folders / expected: export finds all shares; --resume of one keeper's folder, both keepers read theirs; the same bits
TEST_F(checkpoint, keepers_with_folders_of_their_own_share_one) {
  auto job = small_job(300);
  job.checkpoint_every = 20;
  const auto start_keepers = [&] {
    for (const auto* name : {"k1", "k2"})
      cluster->start_node(name, {"--role", "keeper", "--state", folder.path() / ("of-" + std::string(name))});
  };
  start_keepers();
  cluster->wait_for("keepers", limit, [](const status_reply& s) { return living(s, "keeper") == 2; });
  cluster->start_node("a");
  const auto id = cluster->client().submit(job);
  const auto before =
      wait_for_job(id, "a checkpoint of both", [](const job_status& j) { return j.checkpoint_folders.size() == 2; });
  kill_all({"k1", "k2", "a"});
  start("second");
  start_keepers();
  cluster->wait_for("keepers", limit, [](const status_reply& s) { return living(s, "keeper") == 2; });
  cluster->start_node("b");
  const auto resumed = run({"submit", "--resume", before.checkpoint_folders[0].folder + "/", "--wait"});
  EXPECT_EQ(resumed.status, 0) << resumed.error;
  const auto exported = run({"export", "1", "--output", folder.path() / "final.safetensors"});
  EXPECT_EQ(exported.status, 0) << exported.error;
  const auto end = job_of(cluster->client().status(), 1);
  ASSERT_FALSE(end.chain.empty());
  EXPECT_GE(end.chain[0].last, 20u);
  EXPECT_EQ(end.parameters_sha256, undisturbed(job).parameters_sha256);
}

// given: all workers and the keeper are killed, the manager lives / expected: the job waits for what the checkpoint
// has, says so, and goes on when the keeper is back with its folder; the same bits
TEST_F(checkpoint, the_keeper_comes_back_with_its_folder) {
  auto job = small_job(120);
  job.checkpoint_every = 15;
  cluster->start_keeper();
  cluster->start_node("a");
  auto id = cluster->client().submit(job);
  wait_for_job(id, "a checkpoint", [](const job_status& j) { return j.checkpoint_steps >= 15; });
  cluster->node("a").signal(SIGKILL);
  cluster->node("keeper").signal(SIGKILL);
  ASSERT_TRUE(cluster->node("a").wait(limit));
  ASSERT_TRUE(cluster->node("keeper").wait(limit));
  cluster->start_node("b");
  auto waiting = wait_for_job(id, "waiting for the checkpoint", [](const job_status& j) {
    return j.problem.find("waiting for a keeper that has layers 0, 1, 2, 3") != std::string::npos;
  });
  EXPECT_EQ(waiting.state, "running");
  cluster->start_keeper();
  auto end = wait_for_end(id);
  EXPECT_EQ(end.state, "done") << end.problem;
  EXPECT_EQ(end.parameters_sha256, undisturbed(job).parameters_sha256);
}

} // namespace
} // namespace parcae
