#pragma once

// Certificates for a test, in a folder that goes with them.

#include "protocols/trust/authority.hpp"
#include "tests/support/files.hpp"

#include <filesystem>
#include <string>

namespace parcae {

struct test_authority {
  test_authority() { make_authority(folder / "all", std::chrono::days(10)); }

  /// In a folder of its own, where no list of revocations is.
  std::filesystem::path bundle(membership role, const std::string& name,
                               std::chrono::seconds validity = std::chrono::days(10), bool fleet = false) const {
    const auto made = issue_bundle(folder / "all", role, name, validity, fleet);
    const auto away = folder / ("of-" + name);
    std::filesystem::create_directory(away);
    std::filesystem::copy_file(made, away / "own.pem", std::filesystem::copy_options::overwrite_existing);
    std::filesystem::permissions(away / "own.pem",
                                 std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
    return away / "own.pem";
  }

  /// For workers under names NAME-MORE.
  std::filesystem::path fleet(const std::string& name) const {
    return bundle(membership::node, name, std::chrono::days(10), true);
  }

  /// From now on it is revoked for who has that bundle and reads it again.
  void revoke(const std::string& name, const std::filesystem::path& for_bundle) const {
    revoke_bundles(folder / "all", name);
    std::filesystem::copy_file(folder / "all" / "revoked.pem", for_bundle.parent_path() / "revoked.pem",
                               std::filesystem::copy_options::overwrite_existing);
  }

  own_folder folder;
};

} // namespace parcae
