// What is on disk outlives all processes, and is what PyTorch users load.

#include "tests/support/cluster.hpp"

#include <csignal>
#include <cstdlib>
#include <map>
#include <set>

namespace parcae {
namespace {

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

// GPT-2 as its authors and Hugging Face have it, from nothing but what was exported: prints the mean loss over the last
// samples of a text.
constexpr auto loss_of_gpt2 = R"(
import json, sys
import numpy as np
from safetensors.numpy import load_file
folder, text, count = sys.argv[1], open(sys.argv[2], "rb").read(), int(sys.argv[3])
c = json.load(open(folder + "/config.json"))
w = {k: v.astype(np.float64) for k, v in load_file(folder + "/model.safetensors").items()}
assert c["model_type"] == "gpt2" and c["architectures"] == ["GPT2LMHeadModel"] and c["activation_function"] == "gelu_new"
assert ("lm_head.weight" in w) != c["tie_word_embeddings"]
T, H, W = c["n_positions"], c["n_head"], c["n_embd"]
assert w["transformer.h.0.attn.c_attn.weight"].shape == (W, 3 * W)
assert w["transformer.h.0.mlp.c_proj.weight"].shape == (4 * W, W)
def norm(x, p):
    d = x - x.mean(-1, keepdims=True)
    return d / np.sqrt((d ** 2).mean(-1, keepdims=True) + c["layer_norm_epsilon"]) * w[p + ".weight"] + w[p + ".bias"]
def conv1d(x, p):
    return x @ w[p + ".weight"] + w[p + ".bias"]
def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)
def logits(tokens):
    x = w["transformer.wte.weight"][tokens] + w["transformer.wpe.weight"][:len(tokens)]
    mask = np.triu(np.full((len(tokens), len(tokens)), -np.inf), 1)
    for i in range(c["n_layer"]):
        p = "transformer.h.%d" % i
        q, k, v = (y.reshape(-1, H, W // H).transpose(1, 0, 2) for y in np.split(conv1d(norm(x, p + ".ln_1"), p + ".attn.c_attn"), 3, -1))
        a = softmax(q @ k.transpose(0, 2, 1) / np.sqrt(W // H) + mask) @ v
        x = x + conv1d(a.transpose(1, 0, 2).reshape(-1, W), p + ".attn.c_proj")
        y = conv1d(norm(x, p + ".ln_2"), p + ".mlp.c_fc")
        y = 0.5 * y * (1 + np.tanh(np.sqrt(2 / np.pi) * (y + 0.044715 * y ** 3)))
        x = x + conv1d(y, p + ".mlp.c_proj")
    return norm(x, "transformer.ln_f") @ w.get("lm_head.weight", w["transformer.wte.weight"]).T
samples = (len(text) - 1) // T
losses = []
for i in range(samples - count, samples):
    t = np.frombuffer(text[i * T:(i + 1) * T + 1], np.uint8).astype(int)
    z = logits(t[:-1])
    z = z - z.max(-1, keepdims=True)
    losses.append((np.log(np.exp(z).sum(-1)) - z[np.arange(T), t[1:]]).mean())
print(np.mean(losses))
)";

struct checkpoint : cluster_test {
  /// All of the cluster by SIGKILL; nobody can write a last word.
  /// What a script prints with the safetensors library of PyPI, where deploy/setup put it; empty if it is not there.
  std::optional<std::string> python(const std::string& script, const std::vector<std::string>& arguments) {
    const auto* cache = std::getenv("PARCAE_CACHE");
    const auto* home = std::getenv("HOME");
    const auto packages = (cache ? std::string(cache) : std::string(home ? home : "") + "/.cache/parcae") + "/python";
    std::vector<std::string> program{"/usr/bin/env", "PYTHONPATH=" + packages, "python3", "-c"};
    auto import = program;
    import.push_back("import safetensors, numpy");
    if (run_program(import).status != 0)
      return std::nullopt;
    program.push_back(script);
    program.insert(program.end(), arguments.begin(), arguments.end());
    auto x = run_program(program);
    EXPECT_EQ(x.status, 0) << x.error;
    return x.output.substr(0, x.output.find('\n'));
  }

  std::optional<std::string> digest_in(const std::filesystem::path& exported) {
    return python(digest_of_gpt, {exported.string()});
  }

  void kill_all_and_go_on(job_specification job);

  /// The oldest of what is kept of a job, which goes next, or the newest.
  std::filesystem::path stored(std::uint64_t id, bool oldest) {
    const std::filesystem::path newest = job_of(cluster->client().status(), id).checkpoint_folders.at(0).folder;
    std::map<std::uint64_t, std::filesystem::path> all{{std::stoull(newest.filename()), newest}};
    std::error_code gone;
    for (std::filesystem::directory_iterator i(newest.parent_path(), gone), end; !gone && i != end; i.increment(gone))
      if (i->path().filename() != "losses")
        all.emplace(std::stoull(i->path().filename()), i->path());
    return oldest ? all.begin()->second : newest;
  }

  /// What a command says of a checkpoint that goes while it is read: one line, that names it.
  static void expect_named(const outcome& x, const std::string& gone) {
    EXPECT_EQ(x.status, 1) << x.output << x.error;
    const auto line = x.error.substr(std::min(x.error.size(), x.error.find("parcae: ")));
    EXPECT_THAT(line, HasSubstr(gone));
    EXPECT_EQ(std::ranges::count(line, '\n'), 1) << x.error;
  }

  /// The parameters of the same job undisturbed at some steps, in files as `export` writes them.
  std::map<std::uint64_t, std::filesystem::path> undisturbed_at(job_specification job,
                                                                const std::set<std::uint64_t>& at) {
    start("undisturbed");
    start_nodes({"alone"});
    std::map<std::uint64_t, std::filesystem::path> result;
    std::string from;
    job.checkpoint_every = 1'000'000;
    for (const auto steps : at) {
      job.steps = steps;
      std::uint64_t id = 0;
      if (from.empty())
        id = cluster->client().submit(job);
      else
        id = std::stoull(run({"submit", "--resume", from, "--set", "job.steps=" + std::to_string(steps)}).output);
      const auto end = wait_for_done(id);
      from = end.checkpoint_folders.at(0).folder;
      result[steps] = folder.path() / ("undisturbed" + std::to_string(steps));
      EXPECT_EQ(run({"export", std::to_string(id), "--output", result[steps]}).status, 0);
    }
    return result;
  }
};

void checkpoint::kill_all_and_go_on(job_specification job) {
  job.checkpoint_every = 20;
  job.min_depth = 2;
  auto id = start_job(job, {"a", "b"});
  wait_for_job(id, "two checkpoints", [](const job_status& j) { return j.checkpoint_steps >= 40; });
  const auto exported = folder.path() / "running.safetensors";
  auto exporting = run_well({"export", std::to_string(id), "--output", exported});
  auto before = job_of(cluster->client().status(), id);
  ASSERT_EQ(before.state, "running");
  ASSERT_EQ(before.checkpoint_folders.size(), 1u);
  kill_all({"keeper", "a", "b"});
  const auto run_folder = std::filesystem::path(before.checkpoint_folders[0].folder).parent_path();

  start("second");
  cluster->start_keeper("other");
  cluster->start_node("c");
  cluster->start_node("d");
  job.steps = 20;
  for (const auto& x : std::filesystem::directory_iterator(run_folder)) // such as "40@1"
    if (const auto name = x.path().filename().string(); name.find('@') != std::string::npos)
      job.steps = std::max<std::uint64_t>(job.steps, std::stoull(name) + 20);
  run_well({"submit", "--resume", run_folder, "--set", "job.steps=" + std::to_string(job.steps), "--wait"});
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

// given: a job with checkpoints, exported while it runs; manager, keeper and workers are killed; a new cluster with
// another keeper's folder, and --resume of the folder of all its checkpoints / expected: it goes on from the newest
// one, and ends with the bits of an undisturbed run; what is exported has exactly these, under PyTorch's names
TEST_F(checkpoint, everything_is_killed_and_the_job_goes_on) {
  kill_all_and_go_on(small_job(1'000'000)); // it is not over before that
}

// given: the same in bfloat16 / expected: likewise; what is exported is float32
TEST_F(checkpoint, everything_is_killed_and_a_job_in_bfloat16_goes_on) {
  auto job = small_job(1'000'000);
  job.precision = "bfloat16";
  kill_all_and_go_on(job);
}

// given: two keepers with a folder each, one copy of every layer; everything is killed, and new keepers have the
// folders / expected: export finds all shares; --resume of one keeper's folder, both keepers read theirs; the same bits
TEST_F(checkpoint, keepers_with_folders_of_their_own_share_one) {
  auto job = small_job(1'000'000);
  job.checkpoint_every = job.steps; // the one that is asked for stays the newest
  const auto start_keepers = [&] {
    for (const auto* name : {"k1", "k2"})
      cluster->start_node(name, {"--role", "keeper", "--state", folder.path() / ("of-" + std::string(name))});
  };
  start_keepers();
  cluster->wait_for("keepers", limit, [](const status_reply& s) { return living(s, "keeper") == 2; });
  cluster->start_node("a");
  const auto id = cluster->client().submit(job);
  wait_for_job(id, "a snapshot", [](const job_status& j) { return j.protected_steps > 0; });
  cluster->client().checkpoint(id);
  const auto before =
      wait_for_job(id, "a checkpoint of both", [](const job_status& j) { return j.checkpoint_folders.size() == 2; });
  kill_all({"k1", "k2", "a"});
  start("second");
  start_keepers();
  cluster->wait_for("keepers", limit, [](const status_reply& s) { return living(s, "keeper") == 2; });
  cluster->start_node("b");
  job.steps = before.checkpoint_steps + 20;
  run_well({"submit", "--resume", before.checkpoint_folders[0].folder + "/", "--set",
            "job.steps=" + std::to_string(job.steps), "--wait"});
  run_well({"export", "1", "--output", folder.path() / "final.safetensors"});
  const auto end = job_of(cluster->client().status(), 1);
  ASSERT_FALSE(end.chain.empty());
  EXPECT_EQ(end.chain[0].last, before.checkpoint_steps);
  EXPECT_EQ(end.parameters_sha256, undisturbed(job).parameters_sha256);
}

// given: a trained GPT, tied or not, exported for Hugging Face / expected: GPT-2 as written down by others has the loss
// that the job's last evaluation had
TEST_F(checkpoint, exported_for_hugging_face_it_is_the_same_model) {
  start_nodes({"a"});
  for (const bool tied : {true, false}) {
    auto job = small_job(40);
    job.model.tied_embeddings = tied;
    job.data.validation = 8;
    job.evaluate_every = 20;
    const auto end = wait_for_end(cluster->client().submit(job));
    ASSERT_EQ(end.state, "done") << end.problem;
    ASSERT_EQ(end.evaluated_steps, 40);
    const auto exported = folder.path() / ("gpt" + std::to_string(tied));
    const auto exporting = run({"export", std::to_string(end.id), "--layout", "huggingface", "--output", exported});
    ASSERT_EQ(exporting.status, 0) << exporting.error;
    const auto loss = python(loss_of_gpt2, {exported.string(), job.data.path, "8"});
    if (!loss)
      GTEST_SKIP() << "python3 has no safetensors: run deploy/setup to have exported files read by it";
    EXPECT_NEAR(std::stod(*loss), end.validation_loss, 1e-4) << tied;
  }
}

// given: a job with checkpoints that is cancelled / expected: --resume refuses them while it runs; then `checkpoints`
// lists them, complete, with their step; --resume goes on from the newest by its name, and only with --allow-change
// with another seed
TEST_F(checkpoint, has_a_name) {
  auto job = small_job(1'000'000);
  job.checkpoint_every = 10;
  const auto id = start_job(job, {"a"});
  wait_for_job(id, "two checkpoints", [](const job_status& j) { return j.checkpoint_steps >= 20; });
  const auto folder_of_run =
      std::filesystem::path(job_of(cluster->client().status(), id).checkpoint_folders.at(0).folder).parent_path();
  const auto name = folder_of_run.filename().string(), place = folder_of_run.parent_path().string();
  const auto early = run({"submit", "--resume", name});
  EXPECT_EQ(early.status, 1);
  EXPECT_THAT(early.error, HasSubstr("is of job " + std::to_string(id) + ", which still runs"));
  const auto needed = run({"checkpoints", place, "--remove", name});
  EXPECT_EQ(needed.status, 1);
  EXPECT_THAT(needed.error, HasSubstr("is needed by job " + std::to_string(id) + " ("));
  EXPECT_THAT(run({"checkpoints", place, "--keep", "1"}).output, HasSubstr("0 checkpoints removed"));
  run({"cancel", std::to_string(id)});
  const auto end = wait_for_end(id);
  const auto listed = run_well({"checkpoints"});
  EXPECT_THAT(listed.output, HasSubstr(name + "/" + std::to_string(end.checkpoint_steps) + "@"));
  EXPECT_THAT(listed.output, HasSubstr("step " + std::to_string(end.checkpoint_steps) + "/1000000"));
  EXPECT_THAT(listed.output, HasSubstr("all layers"));
  EXPECT_THAT(listed.output,
              EndsWith("`parcae submit --resume NAME` goes on from one of them; JOB of a name JOB/STEP is "
                       "its newest\n"));
  const auto last = "job.steps=" + std::to_string(end.checkpoint_steps + 50);
  const auto refused = run({"submit", "--resume", name, "--set", last, "--set", "job.seed=9"});
  EXPECT_EQ(refused.status, 1);
  EXPECT_THAT(refused.error, HasSubstr("job.seed (9, was 5)"));
  const auto allowed =
      run_well({"submit", "--resume", name, "--set", last, "--set", "job.seed=9", "--allow-change", "--wait"});
  EXPECT_THAT(allowed.error, HasSubstr("goes on with other values than before: job.seed (9, was 5)"));
  run_well({"submit", "--resume", name, "--set", last, "--wait"});
  // What is not needed goes: all but the newest of each job, then a job's.
  const auto kept = run_well({"checkpoints", place, "--keep", "1"});
  EXPECT_THAT(kept.output, HasSubstr("removed " + name + "/"));
  EXPECT_THAT(kept.output, HasSubstr("; 3 left\n"));
  EXPECT_THAT(run({"checkpoints"}).output, HasSubstr(name + "/" + std::to_string(end.checkpoint_steps) + "@"));
  const auto removed = run({"checkpoints", place, "--remove", name});
  EXPECT_THAT(removed.output, HasSubstr("; 2 left\n"));
  EXPECT_FALSE(std::filesystem::exists(folder_of_run)) << "an empty folder";
  const auto unknown = run({"checkpoints", place, "--remove", name});
  EXPECT_EQ(unknown.status, 1);
  EXPECT_THAT(unknown.error, HasSubstr("no checkpoint " + name + " is seen from this machine"));
}

// given: all workers and the keeper are killed, the manager lives / expected: the job waits for what the checkpoint
// has, says so, and goes on when the keeper is back with its folder; the same bits
TEST_F(checkpoint, the_keeper_comes_back_with_its_folder) {
  auto job = endless_job();
  job.checkpoint_every = 15;
  auto id = start_job(job, {"a"});
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
  wait_for_training(id, 1);
  expect_undisturbed_bits(id, job);
}

// given: a job that keeps two checkpoints and writes the next at once; they are exported by their folders and by the
// job's number, and another cluster goes on from them, while they are deleted / expected: by number there is always
// one; else it is read, with the undisturbed run's bits, or one line names what is gone, and no file is left
TEST_F(checkpoint, readers_meet_retention) {
  constexpr std::size_t wanted = 3; // of each outcome
  auto job = endless_job();
  job.checkpoint_every = 10;
  cluster->start_keeper();
  cluster->start_node("a", {"--naps", "1ms"}); // the undisturbed one has as many steps
  const auto id = cluster->client().submit(job);
  wait_for_job(id, "two checkpoints", [](const job_status& j) { return j.checkpoint_steps >= 20; });
  std::map<std::uint64_t, std::filesystem::path> read; // by step
  const auto read_one = [&](const std::string& what, bool with_manager) {
    const auto file = folder.path() / "exported";
    auto x = run({"export", what, "--output", file}, with_manager);
    EXPECT_EQ(std::filesystem::exists(file), x.status == 0);
    if (x.status == 0) {
      const std::string before = "parameters of step ";
      const auto at = std::stoull(x.error.substr(x.error.find(before) + before.size()));
      std::filesystem::rename(file, read[at] = folder.path() / ("read" + std::to_string(at)));
    }
    return x;
  };
  for (std::size_t i = 0; i < wanted; ++i)
    EXPECT_EQ(read_one(std::to_string(id), true).status, 0);
  std::size_t gone = 0;
  for (std::size_t i = 0; read.size() < 2 * wanted || gone < wanted; ++i) {
    ASSERT_LT(i, 200u) << read.size() << " read, " << gone << " gone";
    const auto what = stored(id, gone < wanted);
    if (const auto x = read_one(what, false); x.status != 0) {
      expect_named(x, what);
      ++gone;
    }
  }
  const auto logs = folder.path() / "other";
  std::filesystem::create_directory(logs);
  tested_cluster other(sibling_program(""), logs);
  other.start_keeper();
  other.start_node("b");
  std::map<std::uint64_t, std::string> done; // parameters' digests by step
  gone = 0;
  for (std::size_t i = 0; done.size() < wanted || gone < wanted; ++i) {
    ASSERT_LT(i, 200u) << done.size() << " done, " << gone << " gone";
    const auto what = stored(id, gone < wanted);
    const auto steps = std::stoull(what.filename()) + 1;
    const auto x = run({"submit", "--resume", what, "--set", "job.steps=" + std::to_string(steps), "--manager",
                        to_string(other.where())},
                       false);
    if (x.status != 0) {
      expect_named(x, what);
      ++gone;
      continue;
    }
    const auto number = std::stoull(x.output);
    const auto ended = other.wait_for("the end", limit, [&](const status_reply& y) {
      const auto& state = job_of(y, number).state;
      return state != "queued" && state != "running";
    });
    const auto end = job_of(ended, number);
    gone += end.state != "done";
    if (end.state == "done")
      done[steps] = end.parameters_sha256;
    else
      EXPECT_THAT(end.problem, HasSubstr(what.filename().string()));
  }
  run({"cancel", std::to_string(id)});
  std::set<std::uint64_t> steps;
  for (const auto& [at, file] : read)
    steps.insert(at);
  for (const auto& [at, file] : undisturbed_at(job, steps))
    EXPECT_TRUE(content(read.at(at)) == content(file)) << "step " << at;
  for (const auto& [at, digest] : done) {
    job.steps = at;
    EXPECT_EQ(wait_for_end(cluster->client().submit(job)).parameters_sha256, digest) << "step " << at;
  }
}

} // namespace
} // namespace parcae
