#include "gpu/dataset.hpp"

#include "gpu/seed.hpp"

#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <utility>

namespace parcae {

namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const fs::path& path, const std::string& reason) {
  throw std::runtime_error("data " + path.string() + ": " + reason);
}

[[noreturn]] void fail(const fs::path& path, int error) {
  fail(path, std::system_category().message(error));
}

/// Relative paths of the regular files below a folder, unsorted. Own recursion: an error of the standard one does not
/// say which folder it could not read.
void list_files(const fs::path& root, const fs::path& relative, std::vector<std::string>& files) {
  const auto folder = relative.empty() ? root : root / relative;
  std::error_code error;
  fs::directory_iterator entries{folder, error};
  for (; !error && entries != fs::directory_iterator{}; entries.increment(error)) {
    auto path = relative / entries->path().filename();
    auto status = entries->symlink_status(error);
    if (error)
      fail(root / path, error.message());
    if (fs::is_directory(status))
      list_files(root, path, files);
    else if (fs::is_regular_file(status))
      files.push_back(path.generic_string());
  }
  if (error)
    fail(folder, error.message());
}

/// Appends a whole file and returns its size. `flags` are further ones for open().
std::size_t append_file(const fs::path& path, int flags, std::string& bytes) {
  struct descriptor {
    int number;
    ~descriptor() {
      if (number >= 0)
        ::close(number);
    }
  } file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | flags)};
  struct stat status {};
  if (file.number < 0 || ::fstat(file.number, &status) != 0)
    fail(path, errno);
  if (!S_ISREG(status.st_mode))
    fail(path, "is neither a regular file nor a folder");
  const auto start = bytes.size();
  auto end = start;
  // One byte beyond the expected size, so that the read that finds the end needs no further room.
  bytes.resize(start + static_cast<std::size_t>(status.st_size) + 1);
  for (;;) {
    if (end == bytes.size())
      bytes.resize(bytes.size() + (1 << 16));
    auto n = ::read(file.number, bytes.data() + end, bytes.size() - end);
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0)
      fail(path, errno);
    if (n == 0)
      break;
    end += static_cast<std::size_t>(n);
  }
  bytes.resize(end);
  return end - start;
}

class sha256 {
public:
  sha256() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
    if (!context_ || EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) != 1)
      throw std::runtime_error("SHA-256 is not available");
  }

  void add(std::string_view bytes) { EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()); }

  std::string hexadecimal() {
    std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
    unsigned int size = 0;
    EVP_DigestFinal_ex(context_.get(), digest.data(), &size);
    constexpr std::string_view digits = "0123456789abcdef";
    std::string result;
    for (unsigned int i = 0; i < size; ++i) {
      result += digits[digest[i] >> 4];
      result += digits[digest[i] & 15];
    }
    return result;
  }

private:
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
};

class text_dataset : public dataset {
public:
  text_dataset(const fs::path& path, std::uint64_t sequence) : sequence_(sequence) {
    std::error_code error;
    auto status = fs::status(path, error); // a link given by the user is followed, those inside a folder are not
    if (status.type() == fs::file_type::not_found)
      fail(path, "no such file or folder");
    if (error)
      fail(path, error.message());
    sha256 digest;
    auto add = [&](const std::string& name, const fs::path& file, int flags) {
      const auto start = text_.size();
      const auto size = append_file(file, flags, text_);
      digest.add(name);
      digest.add(std::string_view("\0", 1));
      digest.add(std::to_string(size));
      digest.add(std::string_view("\0", 1));
      digest.add(std::string_view(text_).substr(start));
    };
    if (fs::is_directory(status)) {
      std::vector<std::string> files;
      list_files(path, {}, files);
      std::sort(files.begin(), files.end());
      for (const auto& file : files)
        add(file, path / file, O_NOFOLLOW);
    } else {
      add("", path, 0);
    }
    text_.shrink_to_fit();
    digest_ = digest.hexadecimal();
    if (text_.size() <= sequence_)
      fail(path,
           "has " + std::to_string(text_.size()) + " bytes of text, one sample needs " + std::to_string(sequence_ + 1));
  }

  const std::string& digest() const override { return digest_; }

  std::uint64_t size() const override { return (text_.size() - 1) / sequence_; }

  void read(std::uint64_t index, std::span<std::int64_t> input, std::span<std::int64_t> target) const override {
    if (index >= size() || input.size() != sequence_ || target.size() != sequence_)
      throw std::out_of_range("sample " + std::to_string(index) + " of " + std::to_string(size()) + " into " +
                              std::to_string(input.size()) + " and " + std::to_string(target.size()) + " tokens");
    const auto* token = reinterpret_cast<const unsigned char*>(text_.data()) + index * sequence_;
    std::copy_n(token, sequence_, input.begin());
    std::copy_n(token + 1, sequence_, target.begin());
  }

private:
  std::uint64_t sequence_;
  std::string text_;
  std::string digest_;
};

} // namespace

std::shared_ptr<const dataset> load_dataset(const data_specification& data, const model_specification& model) {
  if (data.kind == "text")
    return std::make_shared<text_dataset>(data.path, model.sequence);
  throw std::runtime_error("data of kind \"" + data.kind + "\" is not known");
}

sample_order::sample_order(std::uint64_t seed, std::uint64_t size) : seed_(seed), size_(size) {
  if (size == 0 || size > UINT32_MAX)
    throw std::invalid_argument("an epoch of " + std::to_string(size) + " samples");
}

std::uint64_t sample_order::operator()(std::uint64_t number) {
  const auto epoch = number / size_;
  if (recent_[0].epoch != epoch) {
    std::swap(recent_[0], recent_[1]);
    if (recent_[0].epoch != epoch) {
      auto& order = recent_[0].order;
      order.resize(size_);
      std::iota(order.begin(), order.end(), 0u);
      std::mt19937_64 random{mix_seed(seed_, "epoch", {epoch})};
      for (auto i = size_ - 1; i > 0; --i)
        std::swap(order[i], order[random() % (i + 1)]);
      recent_[0].epoch = epoch;
    }
  }
  return recent_[0].order[number % size_];
}

} // namespace parcae
