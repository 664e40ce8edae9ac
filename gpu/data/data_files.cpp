#include "gpu/data/data_files.hpp"

#include "protocols/model/seed.hpp"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <system_error>

namespace parcae {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t max_open = 64;
constexpr std::uint64_t sampled_blocks = 1024;
constexpr std::uint64_t block_bytes = 4096;

/// Regular files below a folder, unsorted. Own recursion: an error of the standard one does not say which folder it
/// could not read.
void list_files(const fs::path& root, const fs::path& relative, const std::function<bool(std::string_view)>& wanted,
                std::vector<data_files::file>& files) {
  const auto folder = relative.empty() ? root : root / relative;
  std::error_code error;
  fs::directory_iterator entries{folder, error};
  for (; !error && entries != fs::directory_iterator{}; entries.increment(error)) {
    const auto path = relative / entries->path().filename();
    const auto status = entries->symlink_status(error);
    if (error)
      fail_data(root / path, error.message());
    if (fs::is_directory(status)) {
      list_files(root, path, wanted, files);
    } else if (auto name = path.generic_string(); fs::is_regular_file(status) && (!wanted || wanted(name))) {
      files.push_back({std::move(name), entries->file_size(error)});
      if (error)
        fail_data(root / path, error.message());
    }
  }
  if (error)
    fail_data(folder, error.message());
}

/// Of one file of the digest.
void add_name(sha256& to, const data_files::file& x) {
  to.add(x.name);
  to.add(std::string_view("\0", 1));
  to.add(std::to_string(x.size));
  to.add(std::string_view("\0", 1));
}

} // namespace

void fail_data(const fs::path& path, const std::string& reason) {
  throw data_error("data " + path.string() + ": " + reason);
}

void fail_sample(const fs::path& path, const std::string& reason) {
  throw sample_error("data " + path.string() + ": " + reason);
}

data_files::data_files(fs::path root, const std::function<bool(std::string_view)>& wanted) : root_(std::move(root)) {
  std::error_code error;
  const auto status = fs::status(root_, error); // a link given by the user is followed, those inside a folder are not
  if (status.type() == fs::file_type::not_found)
    fail_data(root_, "no such file or folder");
  if (error)
    fail_data(root_, error.message());
  if (fs::is_directory(status)) {
    list_files(root_, {}, wanted, files_);
    std::ranges::sort(files_, {}, &file::name);
    files_.shrink_to_fit();
  } else {
    try {
      files_.push_back({"", input_file(root_).size()});
    } catch (const input_error& e) {
      fail_data(root_, e.reason);
    }
  }
  for (const auto& x : files_)
    bytes_ += x.size;
  if (bytes_ <= data_held)
    hold();
  if (bytes_ <= data_read_whole) {
    digest_ = digest_of_all(false);
    return;
  }
  sha256 digest;
  digest.add(std::string_view("sampled\0", 8));
  for (const auto& x : files_)
    add_name(digest, x);
  add_samples(digest);
  digest_ = digest.hexadecimal();
}

void data_files::hold() {
  bytes_ = 0;
  for (std::size_t i = 0; i < files_.size(); ++i) {
    try {
      input_file file(path_of(i), files_[i].name.empty());
      const auto require_room = [&](std::uint64_t more) { // it was of another size when all were listed
        if (bytes_ + more > 2 * data_held)
          fail_data(path_of(i), "grows while it is read");
      };
      require_room(file.size());
      auto& bytes = held_.emplace_back();
      // One byte beyond the expected size, so that the read that finds the end needs no further room.
      for (std::size_t room = static_cast<std::size_t>(file.size()) + 1;; room = 1 << 16) {
        const auto begin = bytes.size();
        bytes.resize(begin + room);
        const auto n = file.read(std::as_writable_bytes(std::span(bytes).subspan(begin)));
        bytes.resize(begin + n);
        if (n < room)
          break;
        require_room(bytes.size());
      }
      bytes.shrink_to_fit();
      bytes_ += files_[i].size = bytes.size();
    } catch (const input_error& e) {
      fail_data(path_of(i), e.reason);
    }
  }
}

fs::path data_files::path_of(std::size_t file) const {
  return files_[file].name.empty() ? root_ : root_ / files_[file].name;
}

// One block of each stretch: other data of the same sizes goes unnoticed only if it is the same in all of them. What
// differs over two stretches (a 512th of the data) in a row is found for certain.
void data_files::add_samples(sha256& to) const {
  std::vector<std::byte> block(block_bytes);
  std::size_t file = 0;
  std::uint64_t begin = 0; // of the file, within all
  for (std::uint64_t k = 0; k < sampled_blocks; ++k) {
    const auto from = bytes_ / sampled_blocks * k, length = bytes_ / sampled_blocks;
    auto place = from + mix_seed(0, "block", {k}) % (length - block_bytes);
    for (std::uint64_t rest = block_bytes; rest > 0;) { // it may go over several files
      while (place - begin >= files_[file].size)
        begin += files_[file++].size;
      const auto here = std::min(rest, files_[file].size - (place - begin));
      read(file, place - begin, std::span(block).first(here));
      to.add(std::span<const std::byte>(block).first(here));
      place += here;
      rest -= here;
    }
  }
}

std::string data_files::digest_of_all(const std::atomic<bool>& stop) const {
  sha256 digest;
  std::vector<std::byte> chunk;
  for (std::size_t i = 0; i < files_.size(); ++i) {
    add_name(digest, files_[i]);
    if (held()) {
      digest.add(held_[i]);
      continue;
    }
    chunk.resize(1 << 20);
    for (std::uint64_t place = 0; place < files_[i].size; place += chunk.size()) {
      if (stop)
        return {};
      const auto part = std::span(chunk).first(std::min<std::uint64_t>(chunk.size(), files_[i].size - place));
      read(i, place, part);
      digest.add(std::span<const std::byte>(part));
    }
  }
  return digest.hexadecimal();
}

std::string data_files::whole_digest(const std::atomic<bool>& stop) const {
  return bytes_ <= data_read_whole ? std::string() : digest_of_all(stop);
}

std::shared_ptr<const input_file> data_files::opened(std::size_t file) const {
  const lock held(mutex_);
  if (const auto found = places_.find(file); found != places_.end()) {
    open_.splice(open_.begin(), open_, found->second);
    return open_.front().second;
  }
  auto x = std::make_shared<const input_file>(path_of(file), files_[file].name.empty());
  if (x->size() != files_[file].size)
    throw input_error(path_of(file), "has " + std::to_string(x->size()) + " bytes, had " +
                                         std::to_string(files_[file].size) + " when the job's data was opened");
  if (open_.size() == max_open) {
    places_.erase(open_.back().first);
    open_.pop_back();
  }
  open_.emplace_front(file, std::move(x));
  places_[file] = open_.begin();
  return open_.front().second;
}

void data_files::read(std::size_t file, std::uint64_t place, std::span<std::byte> to) const {
  if (held()) {
    const auto& bytes = held_.at(file);
    if (place > bytes.size() || to.size() > bytes.size() - place)
      throw std::out_of_range("bytes beyond the end of " + path_of(file).string());
    std::memcpy(to.data(), bytes.data() + place, to.size());
    return;
  }
  try {
    if (const auto n = opened(file)->read_at(place, to); n < to.size())
      throw input_error(path_of(file), "has become shorter: nothing is at byte " + std::to_string(place + n) + ", of " +
                                           std::to_string(files_[file].size) + " when the job's data was opened");
  } catch (const input_error& e) {
    spoiled_ = true;
    fail_data(path_of(file), e.reason);
  }
}

void data_files::expect(std::size_t file, std::uint64_t place, std::uint64_t bytes) const {
  if (held())
    return;
  try {
    opened(file)->expect(place, bytes);
  } catch (const input_error&) { // reading it will say so
  }
}

} // namespace parcae
