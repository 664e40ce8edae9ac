#include "runtime/cloud/cloud.hpp"

#include "protocols/base/enum_text.hpp"

#include <fstream>

namespace parcae {

namespace {

/// Azure's machines and those of any other Hyper-V have the same vendor; this tag is Azure's.
constexpr std::string_view azure_tag = "7783-7084-3265-9085-8269-3286-77";

} // namespace

BOOST_DESCRIBE_ENUM(cloud, none, auto_, aws, gcp, azure)

std::string to_string(cloud x) {
  return std::string(enum_name(x));
}

std::optional<cloud> parse_cloud(std::string_view text) {
  return parse_enum<cloud>(text);
}

std::optional<cloud> cloud_of_dmi(const std::filesystem::path& folder) {
  bool any = false;
  const auto line_of = [&](const char* name) {
    std::string line;
    std::ifstream file(folder / name);
    any |= static_cast<bool>(std::getline(file, line));
    return line;
  };
  const auto vendor = line_of("sys_vendor"), product = line_of("product_name"), bios = line_of("bios_vendor"),
             version = line_of("bios_version"), tag = line_of("chassis_asset_tag");
  if (!any)
    return std::nullopt;
  // Instances on Xen have the hypervisor for a vendor, and the cloud in the firmware's version ("4.11.amazon").
  if (vendor == "Amazon EC2" || bios == "Amazon EC2" || version.ends_with(".amazon"))
    return cloud::aws;
  if (product == "Google Compute Engine")
    return cloud::gcp;
  if (tag == azure_tag)
    return cloud::azure;
  return cloud::none;
}

} // namespace parcae
