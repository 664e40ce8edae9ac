#include "protocols/store/fetch.hpp"

#include "protocols/base/digest.hpp"
#include "protocols/base/durable_file.hpp"
#include "protocols/base/locks.hpp"
#include "protocols/base/printable.hpp"
#include "protocols/store/url_rules.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>
#include <optional>
#include <system_error>
#include <utility>

namespace parcae {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t chunk_bytes = 8 << 20;
constexpr std::size_t max_objects = 1'000'000;
constexpr std::size_t max_depth = 32;
constexpr std::string_view partial_mark = ".partial-";
constexpr std::chrono::hours dead_after{24}; // a copy under way to which nothing was added

/// Without its query, which may have a secret.
std::string shown(const std::string& url) {
  return printable(url.substr(0, url.find('?')), 300);
}

[[noreturn]] void fail(const std::string& url, const std::string& why) {
  throw store_error(store_trouble::unreachable, shown(url) + " " + why);
}

std::string key_of(const std::string& text) {
  return sha256_of(text).substr(0, 32);
}

/// The last part of a URL's path; empty: it has none.
std::string file_name(const std::string& url) {
  const auto path = url.substr(0, url.find_first_of("?#"));
  const auto slash = path.rfind('/');
  return slash < path.find("://") + 3 ? std::string() : path.substr(slash + 1);
}

/// Of an object: it becomes a file's, below a folder of ours.
bool is_good(const std::string& name) {
  const auto has_control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  if (name.empty() || name.size() > 1000 || std::ranges::any_of(name, has_control))
    return false;
  for (std::size_t begin = 0; begin <= name.size();) {
    const auto end = std::min(name.find('/', begin), name.size());
    const auto part = name.substr(begin, end - begin);
    if (part.empty() || part == "." || part == ".." || part.size() > 255)
      return false;
    begin = end + 1;
  }
  return true;
}

void list_all(const object_store& at, const std::string& prefix, std::size_t depth, const fetch_options& options,
              std::vector<stored_object>& to) {
  auto list = at.list();
  if (depth > max_depth || to.size() + list.objects.size() > max_objects)
    fail(at.place(), "has more than " + std::to_string(max_objects) + " objects, or is deeper than " +
                         std::to_string(max_depth) + " levels");
  for (auto& x : list.objects) {
    x.name = prefix + x.name;
    if (options.wanted && !options.wanted(x.name))
      continue;
    if (!is_good(x.name))
      fail(at.place(), "has an object that cannot be a file here: " + printable(x.name));
    to.push_back(std::move(x));
  }
  for (const auto& x : list.folders)
    list_all(*at.below(x), prefix + x + "/", depth + 1, options, to);
}

void copy(object_reader& from, const fs::path& to, const std::stop_token& stop) {
  durable_file file(to, file_access::private_);
  std::vector<std::byte> chunk(static_cast<std::size_t>(std::min<std::uint64_t>(from.size(), chunk_bytes)));
  for (std::uint64_t at = 0; at < from.size();) {
    if (stop.stop_requested())
      throw store_error(store_trouble::unreachable, to.filename().string() + ": stopped while it was copied");
    const auto part = std::span(chunk).first(std::min<std::uint64_t>(chunk.size(), from.size() - at));
    from.read(at, part);
    file.write(std::as_bytes(part));
    at += part.size();
  }
  file.publish();
}

/// Of processes that are gone.
void remove_dead(const fs::path& folder) {
  std::error_code ignored;
  for (fs::directory_iterator i(folder, ignored), end; !ignored && i != end; i.increment(ignored)) {
    std::error_code gone;
    if (i->path().filename().string().find(partial_mark) != std::string::npos &&
        fs::file_time_type::clock::now() - i->last_write_time(gone) > dead_after && !gone)
      fs::remove_all(i->path(), gone);
  }
}

/// Makes the folder of a key by `fill`, which puts the files into the folder that it is given, unless it is there.
template <class Fill>
fs::path keep(const std::string& url, const std::string& key, Fill fill) {
  static std::atomic<unsigned> next = 0;
  const auto folder = fetch_folder() / key;
  if (fs::exists(folder))
    return folder;
  auto partial = folder;
  partial += std::string(partial_mark) + std::to_string(getpid()) + "-" + std::to_string(next++);
  std::error_code failed;
  try {
    make_folders(partial, file_access::private_);
    remove_dead(fetch_folder());
    fill(partial);
    fs::rename(partial, folder, failed);
    if (failed && !fs::exists(folder)) // nobody else was faster
      throw std::system_error(failed, "rename");
  } catch (const std::system_error& e) {
    fs::remove_all(partial, failed);
    fail(url, "cannot be copied to " + fetch_folder().string() + ": " + e.what());
  } catch (...) {
    fs::remove_all(partial, failed);
    throw;
  }
  fs::remove_all(partial, failed);
  return folder;
}

std::optional<fs::path> fetch_object(const std::string& url, const fetch_options& options) {
  std::unique_ptr<object_reader> object;
  try {
    object = open_object(url, options.store);
  } catch (const store_error& e) {
    if (e.trouble == store_trouble::absent && url.starts_with("s3://"))
      return std::nullopt; // a prefix, perhaps
    throw;
  }
  const auto name = file_name(url);
  if (!is_good(name))
    fail(url, "does not end with a file's name");
  const auto key = key_of(url + '\n' + std::to_string(object->size()) + '\n' + object->tag());
  return keep(url, key, [&](const fs::path& to) { copy(*object, to / name, options.store.stop); }) / name;
}

fs::path fetch_prefix(const std::string& url, const fetch_options& options) {
  const auto store = open_store(url, options.store);
  std::vector<stored_object> objects;
  list_all(*store, "", 0, options, objects);
  if (objects.empty())
    fail(url, "is not there: neither an object nor anything below it");
  std::ranges::sort(objects, {}, &stored_object::name);
  auto identity = url + '\n';
  for (const auto& x : objects)
    identity +=
        x.name + '\n' + std::to_string(x.bytes) + '\n' +
        std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(x.written.time_since_epoch()).count()) +
        '\n';
  return keep(url, key_of(identity), [&](const fs::path& to) {
    for (const auto& x : objects)
      copy(*store->open(x.name), to / x.name, options.store.stop);
  });
}

struct memory {
  parcae::mutex mutex;
  std::map<std::string, fs::path> paths GUARDED_BY(mutex); ///< by URL
};

memory& known() {
  static memory result;
  return result;
}

} // namespace

fs::path fetch_folder() {
  const auto text = [](const char* name) {
    const auto* x = std::getenv(name);
    return fs::path(x ? x : "");
  };
  if (const auto x = text("PARCAE_CACHE"); !x.empty())
    return x / "fetched";
  if (const auto x = text("XDG_CACHE_HOME"); !x.empty())
    return x / "parcae/fetched";
  if (const auto x = text("HOME"); !x.empty())
    return x / ".cache/parcae/fetched";
  // Not below /tmp: a process that is there first could put in what jobs then train on.
  throw store_error(store_trouble::unreachable, "there is no folder for copies of what jobs name by URL: set "
                                                "PARCAE_CACHE to one of this user's own, or HOME");
}

fs::path fetch(const std::string& url, const fetch_options& options) {
  require_allowed(url, options.store.places);
  auto at = url;
  while (at.ends_with('/'))
    at.pop_back();
  const auto object = fetch_object(at, options);
  auto path = object ? *object : fetch_prefix(at, options);
  const lock held(known().mutex);
  return known().paths[url] = path;
}

fs::path fetched(const std::string& url, const fetch_options& options) {
  require_allowed(url, options.store.places);
  {
    const lock held(known().mutex);
    const auto found = known().paths.find(url);
    if (found != known().paths.end() && fs::exists(found->second))
      return found->second;
  }
  return fetch(url, options);
}

std::string beside(const std::string& url, const std::string& name) {
  const auto path = url.substr(0, url.find_first_of("?#"));
  return path.substr(0, path.rfind('/') + 1) + name;
}

} // namespace parcae
