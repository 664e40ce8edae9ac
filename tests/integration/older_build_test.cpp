// A cluster that is started on what an older build left: see tests/recorded.

#include "tests/support/cluster.hpp"
#include "tests/support/recorded.hpp"

#include <cstring>

namespace parcae {
namespace {

/// Of a safetensors file.
struct tensors {
  boost::json::object header; ///< without what is said of the file
  std::string values;
};

tensors tensors_in(const std::string& file) {
  std::uint64_t length = 0;
  if (file.size() < sizeof length)
    return {};
  std::memcpy(&length, file.data(), sizeof length);
  auto header = boost::json::parse(file.substr(sizeof length, length)).as_object();
  header.erase("__metadata__");
  return {header, file.substr(sizeof length + length)};
}

struct older_build : cluster_test {
  /// A manager with the journal, before there are nodes; a folder for the keeper.
  void start_on(const std::filesystem::path& recorded) {
    const auto name = "of-" + recorded.filename().string();
    start(name);
    kill_manager();
    const auto journal = folder.path() / name / "manager";
    std::filesystem::remove_all(journal);
    std::filesystem::create_directories(journal);
    std::filesystem::copy_file(recorded / "journal.sqlite", journal / "journal.sqlite");
    std::filesystem::copy(recorded / "keeper", cluster->state_folder(), std::filesystem::copy_options::recursive);
    cluster->restart_manager();
  }
};

// given: for every older build the journal of a manager that was killed, and a keeper's folder / expected: what was
// done is shown; the job that ran goes on from its checkpoint and writes the next one, which has another number; its
// checkpoint has the tensors that the older build read there; a model that was exported then trains
TEST_F(older_build, its_jobs_go_on) {
  for (const auto& recorded : recordings()) {
    SCOPED_TRACE(recorded);
    ASSERT_NO_FATAL_FAILURE(start_on(recorded));
    const auto was = json_in(recorded / "sqlite_status.json").at("jobs").as_array();
    const auto now = cluster->client().status();
    for (std::uint64_t id = 1; id <= 4; ++id) {
      EXPECT_EQ(job_of(now, id).state, was.at(id - 1).at("state").as_string());
      EXPECT_EQ(job_of(now, id).parameters_sha256, was.at(id - 1).at("parameters_sha256").as_string());
    }
    const auto checkpoint = job_of(now, 2).checkpoint_steps;
    EXPECT_GE(checkpoint, was.at(1).at("checkpoint_steps").to_number<std::uint64_t>());
    start_nodes({"w"});
    const auto on =
        wait_for_job(2, "another checkpoint", [&](const job_status& j) { return j.checkpoint_steps > checkpoint; });
    ASSERT_GE(on.chain.size(), 2u);
    EXPECT_EQ(on.chain.back().base, checkpoint);

    std::string newest;
    for (const auto& x : std::filesystem::recursive_directory_iterator(recorded / "keeper"))
      if (x.path().filename().string().starts_with(std::to_string(checkpoint) + "@") &&
          x.path().parent_path().filename().string().starts_with("second-"))
        newest = x.path();
    const auto output = folder.path() / "exported";
    const auto exported = run({"export", newest, "--output", output});
    ASSERT_EQ(exported.status, 0) << exported.error;
    const auto before = tensors_in(content(recorded / "exported.safetensors")), after = tensors_in(content(output));
    EXPECT_FALSE(before.values.empty());
    EXPECT_EQ(before.header, after.header);
    EXPECT_EQ(before.values, after.values);

    cluster->client().cancel(2);
    cluster->client().cancel(3);
    const auto file = folder.path() / "exported.toml";
    std::ofstream(file) << "job = {steps = 5}\nmodel = {kind = \"exported\", path = \"" << (recorded / "model").string()
                        << "\"}\ndata = {kind = \"synthetic\", samples = 64}\nbatch = {global = 4, micro = 2}\n";
    run_well({"submit", file, "--wait"});
  }
}

} // namespace
} // namespace parcae
