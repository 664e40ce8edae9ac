#include "protocols/choreography/build.hpp"

#include "protocols/base/libtorch_version.hpp"
#include "protocols/base/printable.hpp"
#include "protocols/choreography/messages.hpp"

#include <algorithm>
#include <cstddef>

namespace parcae {

namespace {

struct build_names {
  std::string version = "unknown", revision = "unknown";
};

build_names& names() {
  static build_names result;
  return result;
}

constexpr std::size_t longest_build = 200; ///< as a manager shows it

/// What of the first word is a version; file names are made of it.
std::string version_in(const std::string& build) {
  return build.substr(0, std::min(build.find_first_not_of("0123456789."), build.size()));
}

} // namespace

void name_this_build(std::string version, std::string revision) {
  names() = {std::move(version), std::move(revision)};
}

std::string this_build() {
  return names().version + " (build " + names().revision + ", protocol " + std::to_string(protocol_version) +
         ", LibTorch " + std::string(libtorch_version) + ")";
}

std::vector<std::string> application_identifiers() {
  return {application_identifier(), application_identifier() + " " + this_build()};
}

std::string problem_of_manager(const std::vector<std::string>& shown) {
  if (std::ranges::find(shown, application_identifier()) != shown.end())
    return {};
  const auto protocol = shown.empty() ? std::string("nothing") : printable(shown.front(), longest_build);
  std::string build = protocol; // all that older ones show
  if (shown.size() > 1 && shown[1].starts_with(shown[0] + " "))
    build = printable(shown[1].substr(shown[0].size() + 1), longest_build);
  const auto version = version_in(build);
  const auto package = version.empty() ? "its package" : "`apt install ./parcae_" + version + "_amd64.deb`";
  return "the manager is " + build + ", this is " + this_build() + "; all of a cluster are to be one build: here " +
         package + (version.empty() ? "" : ", the manager's package") + ", or this one there";
}

} // namespace parcae
