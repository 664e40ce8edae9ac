#include "protocols/store/store.hpp"

#include "protocols/store/folder_store.hpp"
#include "protocols/store/s3_store.hpp"
#include "protocols/store/web_object.hpp"

#include <algorithm>
#include <vector>

namespace parcae {

bool is_url(std::string_view place) {
  return place.find("://") != place.npos;
}

std::shared_ptr<object_store> open_store(const std::string& place, const store_options& options) {
  return is_url(place) ? open_s3_store(place, options) : open_folder_store(place);
}

std::unique_ptr<object_reader> open_object(const std::string& url, const store_options& options) {
  return url.starts_with("s3://") ? open_s3_object(url, options) : open_web_object(url, options);
}

bool object_store::holds(const std::string& name, std::span<const std::byte> bytes) const {
  const auto there = open(name);
  if (there->size() != bytes.size())
    return false;
  std::vector<std::byte> content(bytes.size());
  there->read(0, content);
  return std::ranges::equal(content, bytes);
}

} // namespace parcae
