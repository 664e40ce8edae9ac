#pragma once

// A cluster's private certificate authority: a folder, for setting the cluster up. Nothing of it but the bundles and
// the list of revocations belongs on the machines of the cluster.
//
//   authority.pem, authority.key   its certificate and key: to have the key is to own the cluster
//   issued                         a line for each certificate: serial, role, name (of a fleet NAME-*), end
//   revoked.pem                    the list of revocations, signed: goes beside the bundles
//   NAME.pem                       a bundle: a process's key, its certificate, and the authority's certificate

#include "protocols/trust/identity.hpp"

#include <chrono>
#include <filesystem>
#include <string>

namespace parcae {

/// Makes the folder, with an authority that has revoked nothing. Throws std::runtime_error with one line, also if there
/// is one already.
void make_authority(const std::filesystem::path& folder, std::chrono::days validity);

/// Writes a bundle, of a node for one or for a fleet; one of that name is replaced, its certificate stays good until it
/// ends or is revoked. Returns the bundle's path. Files with keys are for their owner only. Throws std::runtime_error
/// with one line, also if another that is still good might join under the same name.
std::filesystem::path issue_bundle(const std::filesystem::path& folder, membership role, const std::string& name,
                                   std::chrono::seconds validity, bool fleet = false);

/// Revokes all certificates of that name, a fleet's too, and writes the list anew. Returns how many there were. Throws
/// std::runtime_error with one line, also if there is none.
int revoke_bundles(const std::filesystem::path& folder, const std::string& name);

} // namespace parcae
