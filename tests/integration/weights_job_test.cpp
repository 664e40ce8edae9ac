// Jobs that start from weights as Hugging Face saves them, and end as what it loads.

#include "tests/support/cluster.hpp"
#include "tests/support/web_double.hpp"

#include <fstream>
#include <mutex>
#include <regex>
#include <set>
#include <sstream>

namespace parcae {
namespace {

const std::filesystem::path models = PARCAE_PUBLISHED_MODELS;

struct weights_job : cluster_test {
  /// Nothing is learnt: the parameters at the end are those of version 0.
  static constexpr const char* one_idle_step =
      "[job]\nsteps = 1\n[batch]\nglobal = 4\nmicro = 2\n[optimizer]\nlearning_rate = 0\n";

  outcome python(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {PARCAE_PYTHON_TESTS "/with_torch", PARCAE_PYTHON_TORCH,
                                         PARCAE_PYTHON_TESTS "/published_models.py"});
    return run_program(std::move(arguments));
  }

  /// Of the small GPT-2 that Python made, as a built-in kind.
  static std::string gpt(const std::string& weights) {
    return "[model]\nkind = \"gpt\"\nlayers = 2\nwidth = 32\nheads = 4\nsequence = 16\nvocabulary = 256\nweights = \"" +
           (models / "gpt" / weights).string() + "\"\n";
  }
};

// given: GPT-2, BERT, Llama, Qwen2 and ViT as save_pretrained writes them, in shards and with frozen parameters,
// built-in kinds and exported ones (whose folder has other weights) / expected: after a step that changes nothing
// from_pretrained loads what is exported, with the same parameters and logits in every bit
TEST_F(weights_job, what_goes_in_comes_out) {
  const std::string tokens = "[data]\nkind = \"synthetic\"\nsamples = 100\n";
  const std::string bert =
      "[model]\nkind = \"bert\"\nlayers = 2\nwidth = 32\nheads = 4\nsequence = 32\nvocabulary = 300\n"
      "mask_token = 299\n";
  start_nodes({"a", "b"});
  const auto pretrained = [](const std::string& name) { return (models / name / "pretrained").string(); };
  std::vector<std::string> pairs{"compare"};
  for (const std::string name : {"gpt", "bert", "gpt2", "masked", "llama", "frozen", "qwen2", "vit"}) {
    SCOPED_TRACE(name);
    auto text = one_idle_step + tokens;
    if (name == "gpt")
      text += gpt("pretrained");
    else if (name == "bert")
      text += bert + "weights = \"" + pretrained(name) + "\"\n";
    else
      text += "[model]\nkind = \"exported\"\npath = \"" + (models / name / "model").string() + "\"\nweights = \"" +
              pretrained(name) + "\"\n";
    const auto end = wait_for_end(submit(write(name + ".toml", text)));
    ASSERT_EQ(end.state, "done") << end.problem;
    const auto exported = (folder.path() / ("exported-" + name)).string();
    const auto exporting = run({"export", std::to_string(end.id), "--layout", "huggingface", "--output", exported});
    ASSERT_EQ(exporting.status, 0) << exporting.error;
    pairs.insert(pairs.end(), {pretrained(name), exported});
  }
  const auto same = python(pairs);
  EXPECT_EQ(same.status, 0) << same.error;
}

// given: the same GPT-2 / expected: its loss on held-back text is the one that transformers computes, nearly so with
// products in bfloat16; weights in 16 bits are exact, and all end as what was loaded
TEST_F(weights_job, its_loss_is_that_of_transformers) {
  start_nodes({"a"});
  const std::string text = "/usr/share/common-licenses/GPL-3";
  std::vector<std::string> pairs{"compare"}, folders{"loss", text, "8"};
  std::vector<double> losses;
  const std::pair<std::string, std::string> table[] = {
      {"pretrained", "float32"}, {"float16", "float32"}, {"bfloat16", "float32"}, {"pretrained", "bfloat16"}};
  for (const auto& [kind, precision] : table) {
    const auto name = kind + "-" + precision;
    SCOPED_TRACE(name);
    const auto end = wait_for_end(submit(
        write(name + ".toml", "[job]\nprecision = \"" + precision +
                                  "\"\nevaluate_every = 1\nsteps = 1\n[batch]\nglobal = 4\nmicro = 2\n[optimizer]\n"
                                  "learning_rate = 0\n[data]\nkind = \"text\"\nvalidation = 8\npath = \"" +
                                  text + "\"\n" + gpt(kind))));
    ASSERT_EQ(end.state, "done") << end.problem;
    losses.push_back(end.validation_loss);
    const auto exported = (folder.path() / ("exported-" + name)).string();
    ASSERT_EQ(run({"export", std::to_string(end.id), "--layout", "huggingface", "--output", exported}).status, 0);
    folders.push_back((models / "gpt" / kind).string());
    pairs.insert(pairs.end(), {folders.back(), exported});
  }
  const auto theirs = python(folders);
  ASSERT_EQ(theirs.status, 0) << theirs.error;
  std::istringstream lines(theirs.output);
  for (std::size_t i = 0; i < losses.size(); ++i) {
    double wanted = 0;
    ASSERT_TRUE(lines >> wanted);
    EXPECT_NEAR(losses[i], wanted, table[i].second == "float32" ? 1e-5 : 1e-2);
  }
  const auto same = python(pairs);
  EXPECT_EQ(same.status, 0) << same.error;
}

// given: GPT-2, BERT, Llama, Qwen2, ViT, ResNet-18 and a mixer, trained on samples that Python made, and exported /
// expected: from_pretrained (of the last two load_state_dict) loads each; over held-back samples its loss has the bits
// of what the job said, and is not that of the beginning
TEST_F(weights_job, what_was_trained_has_the_same_logits) {
  start_nodes({"a", "b"});
  std::vector<std::string> folders{"trained"};
  std::vector<double> losses;
  const std::vector<std::string> names{"gpt2", "masked", "llama", "qwen2", "vit", "resnet18", "mixer"};
  for (const auto& name : names) {
    SCOPED_TRACE(name);
    const auto job = [&](const std::string& steps, const std::string& rate) {
      const auto end = wait_for_end(submit(write(
          name, "[job]\nsteps = " + steps + "\nevaluate_every = " + steps +
                    "\n[model]\nkind = \"exported\"\npath = \"" + (models / name / "model").string() +
                    "\"\n[data]\nkind = \"columns\"\nvalidation = 4\npath = \"" + (models / name / "data").string() +
                    "\"\n[batch]\nglobal = 16\nmicro = 4\n[optimizer]\nlearning_rate = " + rate + "\n")));
      EXPECT_EQ(end.state, "done") << end.problem;
      return end;
    };
    const auto end = job("30", "1e-3");
    losses.push_back(end.validation_loss);
    EXPECT_NE(job("1", "0").validation_loss, end.validation_loss);
    const bool is_published = std::filesystem::exists(models / name / "pretrained");
    folders.push_back(name);
    folders.push_back((folder.path() / ("trained-" + name)).string());
    std::vector<std::string> exporting{"export", std::to_string(end.id), "--output", folders.back()};
    if (is_published)
      exporting.insert(exporting.end(), {"--layout", "huggingface"});
    const auto exported = run(exporting);
    ASSERT_EQ(exported.status, 0) << exported.error;
  }
  const auto theirs = python(folders);
  ASSERT_EQ(theirs.status, 0) << theirs.error;
  std::istringstream lines(theirs.output);
  for (std::size_t i = 0; i < names.size(); ++i) {
    double wanted = 0;
    ASSERT_TRUE(lines >> wanted);
    EXPECT_EQ(losses[i], wanted) << names[i];
  }
}

// given: that GPT-2, with masks and rates of its tensors and dropout, 20 workers that had a place gone, every third
// with notice / expected: the parameters of the undisturbed run, bit for bit
TEST_F(weights_job, twenty_preemptions_cost_no_bit) {
  const auto file = write("tuned.toml", R"(
[job]
steps = 1000000
checkpoint_every = 20
evaluate_every = 50
patience = 100
[data]
kind = "text"
path = "/usr/share/common-licenses/GPL-3"
validation = 20
[batch]
global = 8
micro = 2
[optimizer]
weight_decay = 0.1
decay_norms_and_biases = false
rate_factors = "transformer.w?e.*=0.1, transformer.h.0.*=0.5"
clip_norm = 1.0
[keepers]
every = 5
)" + gpt("bfloat16") + "dropout = 0.1\n");
  start_nodes({"w0", "w1", "w2"});
  expect_preempted_bits(file, {});
}

// given: the example, with the folder that its script makes / expected: all of its keys are taken, it learns
TEST_F(weights_job, the_example_runs) {
  const auto pretrained = (folder.path() / "pretrained").string();
  const auto made = run_program({PARCAE_PYTHON_TESTS "/with_torch", PARCAE_PYTHON_TORCH,
                                 PARCAE_EXAMPLES "/huggingface/pretrained.py", pretrained});
  ASSERT_EQ(made.status, 0) << made.error;
  auto text = content(PARCAE_EXAMPLES "/huggingface/finetune.toml");
  const std::string there = "/tmp/parcae-gpt2-pretrained";
  text.replace(text.find(there), there.size(), pretrained);
  start_nodes({"a"});
  const auto end = wait_for_end(submit(write("finetune.toml", text), {"--set", "job.epochs=1"}));
  EXPECT_EQ(end.state, "done") << end.problem;
  EXPECT_EQ(end.steps_done % 20, end.steps_done == end.steps ? end.steps % 20 : 0);
  EXPECT_LT(end.validation_loss, 3.5) << "5.5 in the beginning";
}

// given: the example of a BERT that classifies, with the folders that its script makes / expected: its keys are taken,
// it learns
TEST_F(weights_job, the_example_of_a_classifier_runs) {
  const auto made_here = [&](const std::string& name) {
    const auto path = folder.path() / name;
    std::ofstream(path) << std::regex_replace(content(PARCAE_EXAMPLES "/huggingface/" + name),
                                              std::regex("/tmp/parcae-"), (folder.path() / "made-").string());
    return path.string();
  };
  const auto made = run_program({PARCAE_PYTHON_TESTS "/with_torch", PARCAE_PYTHON_TORCH, made_here("classify.py")});
  ASSERT_EQ(made.status, 0) << made.error;
  start_nodes({"a", "b"});
  const auto end = wait_for_end(submit(made_here("classify.toml")));
  EXPECT_EQ(end.state, "done") << end.problem;
  EXPECT_EQ(end.steps_done, 200u);
  EXPECT_LT(end.validation_loss, 0.3) << "guessing has ln 2";
}

// given: an index with four shards on a server with TLS, then without one of them; one file, replaced by another after
// submit / expected: the bits of a job with the same files of this machine; the others are refused by name, before a
// step
TEST_F(weights_job, come_from_the_web) {
  std::mutex mutex;
  std::set<std::string> gone, asked;
  std::string replaced; // of the one file
  const auto pem = make_certificate(folder.path() / "tls", "DNS:localhost");
  web_double web(
      [&](const web_double::request& x) {
        const std::lock_guard held(mutex);
        const std::string name(x.target().substr(1));
        asked.insert(name);
        if (gone.contains(name))
          return web_double::make(404);
        const auto body = replaced.empty() || !name.starts_with("float16") ? content(models / "gpt" / name) : replaced;
        return web_double::make_range(x, body, "\"" + std::to_string(std::hash<std::string>()(body)) + "\"");
      },
      pem);
  setenv("AWS_CA_BUNDLE", pem.c_str(), 1);
  setenv("PARCAE_CACHE", (folder.path() / "cache").c_str(), 1);
  const auto job = [&](const std::string& weights) {
    auto text = gpt("pretrained");
    const auto local = (models / "gpt" / "pretrained").string();
    text.replace(text.find(local), local.size(), weights);
    return text + "[job]\nsteps = 3\n[batch]\nglobal = 4\nmicro = 2\n[data]\nkind = \"synthetic\"\n";
  };
  const std::string shards = web.url() + "/pretrained/", index = shards + "model.safetensors.index.json",
                    one = web.url() + "/float16/model.safetensors";
  const auto lost = "pretrained/model-00003-of-00004.safetensors";
  gone = {lost};
  const auto refused = run({"submit", write("lost.toml", job(index))});
  EXPECT_EQ(refused.status, 1);
  EXPECT_THAT(refused.error, testing::AllOf(HasSubstr("lost.toml:"), HasSubstr(lost), HasSubstr("is not there")));
  gone.clear();
  const auto waiting = submit(write("replaced.toml", job(one))); // there is no worker yet
  {
    const std::lock_guard held(mutex);
    replaced = content(models / "gpt" / "float16" / "model.safetensors");
    replaced[replaced.size() - 2] ^= 1;
  }
  cluster->start_keeper();
  for (const auto* name : {"a", "b"}) // the server is this machine, which jobs reach only if it is named
    cluster->start_node(name, {"--data", web.url(), "--data", "/"});
  const auto other = wait_for_end(waiting);
  EXPECT_EQ(other.state, "failed");
  EXPECT_EQ(other.steps_done, 0u);
  EXPECT_THAT(other.problem, HasSubstr("has other values of"));
  for (const auto& [url, local] : {std::pair(index, "pretrained"), {one, "float16"}}) {
    SCOPED_TRACE(url);
    {
      const std::lock_guard held(mutex);
      replaced.clear();
    }
    const auto far = wait_for_end(submit(write("far.toml", job(url))));
    ASSERT_EQ(far.state, "done") << far.problem;
    const auto near = wait_for_end(submit(write("near.toml", job((models / "gpt" / local).string()))));
    EXPECT_FALSE(far.parameters_sha256.empty());
    EXPECT_EQ(far.parameters_sha256, near.parameters_sha256);
  }
  EXPECT_TRUE(asked.contains("pretrained/model-00004-of-00004.safetensors"));
  unsetenv("AWS_CA_BUNDLE");
  unsetenv("PARCAE_CACHE");
}

// given: weights that do not fit, that are elsewhere, and that changed after submit / expected: refused with a line
// that says where, before a step
TEST_F(weights_job, what_does_not_fit_is_said_before_a_step) {
  const std::string rest = std::string(one_idle_step) + "[data]\nkind = \"synthetic\"\n";
  const auto refusal = [&](const std::string& text) {
    const auto x = run({"submit", write("wrong.toml", text)});
    EXPECT_EQ(x.status, 1);
    return x.error;
  };
  auto narrow = gpt("pretrained");
  narrow.replace(narrow.find("width = 32"), 10, "width = 16");
  EXPECT_THAT(refusal(narrow + rest), HasSubstr("wrong.toml:8:"));
  EXPECT_THAT(refusal(narrow + rest), HasSubstr("of shape"));
  auto heads = gpt("pretrained");
  heads.replace(heads.find("heads = 4"), 9, "heads = 2");
  EXPECT_THAT(refusal(heads + rest), HasSubstr("config.json says n_head is 4, and it is 2 in the job's model"));
  EXPECT_THAT(refusal("[model]\nkind = \"gpt\"\nweights = \"hf://gpt2\"\n" + rest),
              HasSubstr("model.weights is \"hf://gpt2\"; URLs begin with s3:// or https://"));
  const auto copy = folder.path() / "copy";
  std::filesystem::copy(models / "gpt" / "float16", copy);
  auto text = gpt("float16");
  text.replace(text.find((models / "gpt" / "float16").string()), (models / "gpt" / "float16").string().size(), copy);
  const auto file = write("changed.toml", text + rest);
  const auto id = submit(file); // there is no worker yet
  {
    std::fstream weights(copy / "model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
    weights.seekp(-2, std::ios::end);
    weights.put('\x55');
  }
  start_nodes({"w0"});
  const auto end = wait_for_end(id);
  EXPECT_EQ(end.state, "failed");
  EXPECT_EQ(end.steps_done, 0u);
  EXPECT_THAT(end.problem, HasSubstr("has other values of"));
}

} // namespace
} // namespace parcae
