// Jobs whose layers are of a plug-in: the example's, built as its CMake file says, and libraries that are refused.

#include "tests/support/cluster.hpp"

#include <fstream>

namespace parcae {
namespace {

struct plugin_job : cluster_test {
  const std::string library = PARCAE_EXAMPLE_PLUGIN "/libmixer.so";
  const std::string bad_layers = PARCAE_OTHER_PLUGINS "/libbad_layers.so";

  outcome run_node(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), sibling_program("parcae-node"));
    return run_program(std::move(arguments));
  }

  /// What the library says of its model, as a file.
  std::string description(const std::vector<std::string>& arguments = {"mixer", "width=16", "depth=2"}) {
    std::vector<std::string> command{"--plugin", library, "--describe"};
    command.insert(command.end(), arguments.begin(), arguments.end());
    const auto x = run_node(command);
    EXPECT_EQ(x.status, 0) << x.error;
    const auto path = folder.path() / "mixer.json";
    std::ofstream(path) << x.output;
    return path;
  }

  std::string job_file(const std::string& model, std::uint64_t steps) {
    const auto path = folder.path() / "mixer.toml";
    std::ofstream(path) << "[job]\nsteps = " << steps
                        << "\ncheckpoint_every = 20\nevaluate_every = 50\n[model]\nkind = \"plugin\"\npath = \""
                        << model << "\"\n[data]\nkind = \"synthetic\"\nsamples = 512\nvalidation = 16\n"
                        << "[batch]\nglobal = 8\nmicro = 2\n[keepers]\nevery = 5\n";
    return path;
  }

  /// Of a model of `bad_layers`.
  std::string bad_job(const std::string& how) {
    const auto x = run_node({"--plugin", bad_layers, "--describe", how});
    EXPECT_EQ(x.status, 0) << x.error;
    const auto path = folder.path() / (how + ".json");
    std::ofstream(path) << x.output;
    const auto file = folder.path() / "bad.toml";
    std::ofstream(file) << "[job]\nsteps = 5\n[model]\nkind = \"plugin\"\npath = \"" << path.string()
                        << "\"\n[data]\nkind = \"synthetic\"\n[batch]\nglobal = 4\nmicro = 2\n";
    return file;
  }
};

// given: a mixer with dropout and BatchNorm from a plug-in, submitted where no plug-in is, 20 preemptions of workers
// that had a place; a keeper and a worker without the plug-in / expected: the bits of the undisturbed run; behind the
// last preemption who has not the plug-in has no place
TEST_F(plugin_job, twenty_preemptions_cost_no_bit) {
  const std::vector<std::string> with{"--plugin", library};
  const auto file = job_file(description(), 1'000'000);
  start_nodes({"stranger"});
  for (auto name : {"w0", "w1", "w2"})
    cluster->start_node(name, with);
  wait_for_workers(4);
  for (const auto& place : expect_preempted_bits(file, {.with = with}).grid)
    EXPECT_THAT(place, testing::Not(HasSubstr("stranger")));
}

// given: workers without the plug-in, then one with it / expected: the job says what it waits for, then runs; --check
// says the same. A job of a built-in kind, if its bits may differ, runs on both
TEST_F(plugin_job, waits_for_who_has_it) {
  const auto file = job_file(description(), 20);
  start_nodes({"stranger"});
  const auto check = run({"submit", file, "--check"});
  EXPECT_EQ(check.status, 1);
  EXPECT_THAT(check.error, HasSubstr("waits for workers with the plug-in that"));
  const auto id = submit(file);
  wait_for_job(id, "what it waits for", [](const job_status& j) {
    return j.state == "queued" && j.problem.find("parcae-node --plugin FILE") != std::string::npos;
  });
  cluster->start_node("w0", {"--plugin", library});
  const auto end = wait_for_done(id);
  auto built_in = small_job(20);
  built_in.min_width = 2;
  built_in.max_depth = 1;
  built_in.reproducible = false;
  EXPECT_EQ(wait_for_end(cluster->client().submit(built_in)).state, "done");
}

// given: libraries that are none, of no plug-in, for another torch; names and arguments that the library does not
// have; a description in another format, or changed by hand / expected: one line each, before a step
TEST_F(plugin_job, what_does_not_fit_is_refused) {
  const auto refused = [&](const std::string& file, const std::string& why) {
    const auto x = run_node({"--manager", to_string(cluster->where()), "--plugin", file});
    EXPECT_EQ(x.status, 1);
    EXPECT_THAT(x.error, HasSubstr(why));
    EXPECT_EQ(std::ranges::count(x.error, '\n'), 1) << x.error;
  };
  refused("/nothing/here.so", "/nothing/here.so cannot be opened: No such file or directory");
  const auto text = folder.path() / "text.so";
  std::ofstream(text) << "no library";
  refused(text, "text.so cannot be opened: file too short");
  refused(PARCAE_OTHER_PLUGINS "/libno_plugin.so", "is no plug-in of Parcae: it has no PARCAE_PLUGIN");
  refused(PARCAE_OTHER_PLUGINS "/libother_torch.so",
          "was built for interface 1, torch 2.10.0, libstdc++, this node is interface 1, torch 2.11.0, libstdc++");
  const auto describe = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"--plugin", library, "--describe"});
    const auto x = run_node(arguments);
    EXPECT_NE(x.status, 0);
    return x.error;
  };
  EXPECT_THAT(describe({"vgg"}), HasSubstr("libmixer.so has no model vgg; it has mixer"));
  EXPECT_THAT(describe({"mixer", "heads=4"}), HasSubstr("\"heads\" is none of patch, width and depth"));
  EXPECT_THAT(describe({"mixer", "depth"}), HasSubstr("takes KEY=VALUE"));
  const auto path = description();
  const auto right = content(path);
  const auto changed = [&](const std::string& from, const std::string& to) {
    auto x = right;
    x.replace(x.find(from), from.size(), to);
    std::ofstream(path) << x;
    return job_file(path, 20);
  };
  const auto other = run({"submit", changed("\"version\":1", "\"version\":7")});
  EXPECT_EQ(other.status, 1);
  EXPECT_THAT(other.error, HasSubstr("mixer.toml:7:8: "));
  EXPECT_THAT(other.error, HasSubstr("version 7 of the format"));
  start_nodes({"w0"}, {"--plugin", library});
  const auto end = wait_for_end(submit(changed("\"forward_flop\":", "\"forward_flop\":1")));
  EXPECT_EQ(end.state, "failed");
  EXPECT_EQ(end.steps_done, 0u);
  EXPECT_THAT(end.problem, HasSubstr("says something else of mixer than it did when"));
}

// given: a layer that ends by a signal whoever computes it / expected: with the third worker the job fails, and names
// them; a keeper lives, and the next job runs on a worker that comes
TEST_F(plugin_job, who_ends_its_workers_fails) {
  cluster->start_keeper();
  for (auto name : {"w0", "w1", "w2"})
    cluster->start_node(name, {"--plugin", bad_layers});
  wait_for_workers(3);
  const auto end = wait_for_end(submit(bad_job("crashes")));
  EXPECT_EQ(end.state, "failed");
  EXPECT_THAT(end.problem, HasSubstr("were ended by SIGFPE after 0 steps"));
  for (auto name : {"w0", "w1", "w2"})
    EXPECT_THAT(end.problem, HasSubstr(name));
  cluster->start_node("w3");
  EXPECT_EQ(wait_for_end(cluster->client().submit(small_job(5))).state, "done");
}

// given: a layer that takes hours, of a job that is cancelled / expected: the worker ends within a minute and a half,
// and why is in its log
TEST_F(plugin_job, a_layer_of_hours_ends_with_its_worker) {
  start_nodes({"w0"}, {"--plugin", bad_layers});
  const auto id = submit(bad_job("sleeps"));
  wait_for_job(id, "a start", [](const job_status& j) { return j.state == "running"; });
  EXPECT_EQ(run({"cancel", std::to_string(id)}).status, 0);
  EXPECT_EQ(wait_for_end(id).state, "cancelled");
  EXPECT_EQ(cluster->node("w0").wait(std::chrono::seconds(90)), 128 + SIGKILL);
  EXPECT_THAT(content(folder.path() / "first" / "w0.log"), HasSubstr("did not end within 1m"));
}

// given: layers that draw from PyTorch's own generator, write to their parameters, return another shape, or throw /
// expected: LOAD refuses each, with the layer's name
TEST_F(plugin_job, layers_are_tried_before_they_train) {
  start_nodes({"w0"}, {"--plugin", bad_layers});
  for (const auto& [how, why] : {std::pair("random", "layer 1 (bad) in training: draws from PyTorch's own generator"),
                                 {"writes", "layer 1 (bad) in training: writes to its parameters or its input"},
                                 {"shape", "layer bad returns Float[2, 16, 8], the plug-in says Float[2, 16, 256]"},
                                 {"throws", "layer bad: not today"}}) {
    const auto end = wait_for_end(submit(bad_job(how)));
    EXPECT_EQ(end.state, "failed") << how;
    EXPECT_EQ(end.steps_done, 0u) << how;
    EXPECT_THAT(end.problem, HasSubstr(why)) << how;
  }
}

} // namespace
} // namespace parcae
