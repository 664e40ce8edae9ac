#pragma once

// A scratch folder with checkpoints in it, whose tensors follow from layer and version.

#include "gpu/checkpoint/checkpoint.hpp"
#include "protocols/model/model_description.hpp"
#include "tests/support/files.hpp"
#include "tests/support/thrown_by.hpp"

#include <gmock/gmock.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace parcae {

/// While it lives, no file of this process grows beyond some bytes.
class full_disk {
public:
  full_disk() {
    std::signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit small{100, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
  }
  ~full_disk() { setrlimit(RLIMIT_FSIZE, &before_); }

private:
  rlimit before_{};
};

inline job_specification job() {
  job_specification x;
  x.name = "text";
  x.steps = 1000;
  x.model.layers = 1;
  x.model.width = 8;
  x.model.heads = 2;
  x.model.sequence = 4;
  x.data.path = "/some/where";
  return x;
}

/// Some 6 MB: more than a part of an upload.
inline job_specification large_job() {
  auto x = job();
  x.model.width = 184;
  return x;
}

inline std::shared_ptr<const shard_bytes> shard_of(std::uint32_t layer, version at,
                                                   const job_specification& of = job()) {
  const auto model = describe(of.model);
  const auto& description = model.layers.at(layer);
  std::mt19937_64 random(layer + 10 * at.steps);
  shard_bytes x{layer, at, {}};
  auto add_part = [&](std::uint64_t values) {
    auto& to = x.parts.emplace_back(values * sizeof(float));
    for (std::size_t at = 0; at < to.size(); at += sizeof(std::uint64_t)) {
      const std::uint64_t word = random();
      std::memcpy(to.data() + at, &word, std::min(sizeof word, to.size() - at));
    }
  };
  for (std::uint32_t part = 0; part <= moments_of(of.optimizer); ++part)
    add_part(description.parameters());
  if (!description.buffers.empty())
    add_part(description.buffer_values());
  return std::make_shared<const shard_bytes>(std::move(x));
}

struct checkpoint_folder_test : testing::Test {
  void write(const std::filesystem::path& to, const std::string& keeper, const std::vector<std::uint32_t>& layers,
             version made = {20, {3}}, const job_specification& of = job()) {
    checkpoint_share share{{made, {.step = made.steps - 1, .loss = 2.5}, of, "digest of the data", {}, 0, {}}, {}};
    for (auto layer : layers)
      share.shards.push_back(shard_of(layer, made, of));
    write_share(*place(to), keeper, std::move(share), never);
  }

  static store_ptr place(const std::filesystem::path& folder) { return open_store(folder.string()); }

  /// The error of reading all of a checkpoint; empty if there is none.
  static std::string error_of(const std::filesystem::path& from) {
    return thrown_by<checkpoint_error>([&] {
      checkpoint_reader reader({place(from)});
      for (auto layer : reader.layers())
        reader.read(layer);
    });
  }

  static void put(const std::filesystem::path& path, const std::string& content) {
    std::ofstream(path, std::ios::binary) << content;
  }

  own_folder folder;
  std::atomic<bool> never = false;
};

} // namespace parcae
