#pragma once

// A cluster whose manager rents its workers: it has a keeper, and nobody else until the hook starts them.

#include "tests/support/cluster.hpp"

namespace parcae {

struct rented_cluster : cluster_test {
  /// Anew, if it was begun before. `manager_arguments`: market and hook.
  void begin_rented(std::vector<std::string> manager_arguments) {
    cluster.reset();
    std::filesystem::remove_all(rented);
    std::filesystem::create_directory(rented);
    ground.manager_arguments = std::move(manager_arguments);
    cluster.emplace(sibling_program(""), rented, ground);
    cluster->start_keeper();
  }

  void TearDown() override {
    cluster_test::TearDown();
    cluster.reset(); // it reads the feed
  }

  const std::filesystem::path rented = folder.path() / "rented"; ///< where its logs are
  cluster_ground ground;
};

} // namespace parcae
