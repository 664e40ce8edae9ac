#pragma once

// Places for objects with names: a folder of this machine, or a prefix in a bucket of S3 and whatever speaks like it.
// Everything here waits, for disk or network, but never without a limit: threads of actors must not call it. Names have
// parts, with / between them, as paths have. Reading, writing and listing may be done by several threads at once; a
// reader or writer is one thread's.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

namespace parcae {

enum class store_trouble : std::uint8_t {
  absent,      ///< there is no such object
  damaged,     ///< it is not what it was, such as replaced while it was read, or is no object at all
  unreachable, ///< not now: no connection, no access, no room; what is there is unknown
};

/// what(): one line with the place, what is wrong, and what to do about it. Never a secret.
struct store_error : std::runtime_error {
  store_error(store_trouble x, const std::string& what) : std::runtime_error(what), trouble(x) {}

  store_trouble trouble;
};

/// An object open for reading. All methods throw store_error.
class object_reader {
public:
  virtual ~object_reader() = default;
  virtual std::uint64_t size() const = 0;
  /// What its server says changes with it (ETag); empty: nothing.
  virtual std::string tag() const { return {}; }
  /// Fills `to` with what begins at byte `from` of the object; all of it must be there.
  virtual void read(std::uint64_t from, std::span<std::byte> to) = 0;
};

/// An object on its way: it is there, whole and durable, once it is published; else never. All methods throw
/// store_error, or std::system_error of a folder.
class object_writer {
public:
  virtual ~object_writer() = default; ///< what was not published is given up
  virtual void write(std::span<const std::byte> bytes) = 0;
  virtual void publish() = 0;
};

struct stored_object {
  std::string name; ///< below the place
  std::uint64_t bytes = 0;
  std::chrono::system_clock::time_point written{}; ///< by the store's clock
};

/// What is directly below a place.
struct stored_list {
  std::vector<stored_object> objects; ///< by name
  std::vector<std::string> folders;   ///< parts of names that have others below them, sorted
};

class object_store {
public:
  virtual ~object_store() = default;

  virtual const std::string& place() const = 0; ///< as people write it: absolute, without a / at its end

  /// The place below this one: it needs not be there.
  virtual std::shared_ptr<object_store> below(const std::string& name) const = 0;

  /// Nothing there: empty. Throws store_error, also if it is more than 100,000.
  virtual stored_list list() const = 0;

  /// Throws store_error.
  virtual std::unique_ptr<object_reader> open(const std::string& name) const = 0;

  /// What has that name is replaced when this one is published, which will have `bytes`. Throws as object_writer.
  virtual std::unique_ptr<object_writer> create(const std::string& name, std::uint64_t bytes) = 0;

  /// Puts a small object there, whole, unless that name is taken. Of all callers one is told true, and so is a caller
  /// whose bytes are there already. Throws as object_writer.
  virtual bool put_if_absent(const std::string& name, std::span<const std::byte> bytes) = 0;

  /// Whether the object has just these bytes. Throws store_error, also if there is none.
  bool holds(const std::string& name, std::span<const std::byte> bytes) const;

  /// What is not there need not be removed. Folders that are empty then go too. Throws store_error.
  virtual void remove(const std::string& name) = 0;

  /// Gives up what writers that are dead had not published, here and further below, of names (the last part) that are
  /// `ours`. Throws store_error.
  virtual void give_up_unfinished(const std::function<bool(std::string_view name)>& ours) = 0;
};

/// Times and sizes; other ones are for tests.
struct store_pace {
  unsigned attempts = 5;                      ///< at a request that fails for a reason that may pass
  std::chrono::milliseconds first_pause{250}; ///< before the second; doubles, and is drawn anew from zero to that
  std::chrono::milliseconds longest_pause{8'000};
  std::chrono::milliseconds connect{10'000}; ///< as http_limits
  std::chrono::milliseconds idle{20'000};
  std::chrono::milliseconds whole{30'000};            ///< plus bytes at slowest_per_s
  std::uint64_t slowest_per_s = 256 * 1024;           ///< bytes
  std::uint64_t part_bytes = std::uint64_t{64} << 20; ///< of a multipart upload; more if there would be over 10,000
  unsigned parts_at_once = 3;                         ///< each in memory
  std::uint64_t window_bytes = 8 << 20;               ///< read at least, if the object has them
};

struct store_options {
  /// A job's, such as "https://minio.example:9000"; empty: AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, or AWS.
  std::string endpoint{};
  std::string region{};   ///< empty: AWS_REGION, AWS_DEFAULT_REGION, ~/.aws/config, or us-east-1
  std::stop_token stop{}; ///< ends all waiting within milliseconds, by store_error
  store_pace pace{};
  /// What may be asked by URL, redirections and a job's endpoint included (url_rules.hpp); empty: all.
  std::vector<std::filesystem::path> places{};
};

/// "s3://BUCKET[/PREFIX]", or a folder's path. Asks nobody yet. Credentials are looked for as AWS's tools do: in the
/// environment, ~/.aws/credentials (AWS_PROFILE), the instance's role; they are read again when they expire. Throws
/// store_error: it is no such thing, or the environment has nonsense.
std::shared_ptr<object_store> open_store(const std::string& place, const store_options& options = {});

/// A regular file. Throws store_error.
std::unique_ptr<object_reader> open_file(const std::filesystem::path& path);

/// Whether it is written as a URL, and so is no path.
bool is_url(std::string_view place);

/// An object by its URL: "s3://BUCKET/NAME", "https://…" or "http://…" (up to five redirections, none from https to
/// http); the server must serve ranges. Throws store_error.
std::unique_ptr<object_reader> open_object(const std::string& url, const store_options& options = {});

} // namespace parcae
