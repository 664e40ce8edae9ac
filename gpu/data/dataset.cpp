#include "gpu/data/dataset.hpp"

#include "gpu/data/datasets.hpp"
#include "protocols/base/digest.hpp"
#include "protocols/store/fetch.hpp"

#include <algorithm>
#include <numeric>
#include <system_error>
#include <utility>

namespace parcae {

namespace {

namespace fs = std::filesystem;

/// Several sources, one after the other.
class joined_dataset final : public dataset {
public:
  explicit joined_dataset(std::vector<std::shared_ptr<const dataset>> parts) : parts_(std::move(parts)) {
    std::vector<std::string> digests;
    for (const auto& x : parts_) {
      first_.push_back(size_);
      size_ += x->size();
      digests.push_back(x->digest());
    }
    digest_ = digest_of(digests);
  }

  const std::string& digest() const override { return digest_; }

  std::string whole_digest(const std::atomic<bool>& stop) const override {
    std::vector<std::string> digests;
    bool large = false;
    for (const auto& x : parts_) {
      const auto whole = x->whole_digest(stop);
      large |= !whole.empty();
      digests.push_back(whole.empty() ? x->digest() : whole);
    }
    return large && !stop ? digest_of(digests) : std::string();
  }

  std::uint64_t size() const override { return size_; }

  std::vector<std::uint64_t> sizes() const override {
    std::vector<std::uint64_t> result;
    for (const auto& x : parts_)
      result.push_back(x->size());
    return result;
  }

  void read(std::uint64_t index, std::span<std::int64_t> input, std::span<std::int64_t> target) const override {
    const auto [part, place] = find(index);
    part->read(place, input, target);
  }

  void read_augmented(std::uint64_t index, std::uint64_t seed, std::span<std::int64_t> input,
                      std::span<std::int64_t> target) const override {
    const auto [part, place] = find(index);
    part->read_augmented(place, seed, input, target);
  }

  void expect(std::uint64_t index) const override {
    const auto [part, place] = find(index);
    part->expect(place);
  }

  std::string file_of(std::uint64_t index) const override {
    const auto [part, place] = find(index);
    return part->file_of(place);
  }

  bool spoiled() const override {
    return std::ranges::any_of(parts_, [](const auto& x) { return x->spoiled(); });
  }

private:
  static std::string digest_of(const std::vector<std::string>& digests) {
    sha256 digest;
    digest.add(std::string_view("sources"));
    for (const auto& x : digests)
      digest.add(x);
    return digest.hexadecimal();
  }

  std::pair<const dataset*, std::uint64_t> find(std::uint64_t index) const {
    const auto part = static_cast<std::size_t>(std::ranges::upper_bound(first_, index) - first_.begin()) - 1;
    return {parts_[part].get(), index - first_[part]};
  }

  std::vector<std::shared_ptr<const dataset>> parts_;
  std::vector<std::uint64_t> first_; ///< sample of each
  std::uint64_t size_ = 0;
  std::string digest_;
};

std::shared_ptr<const dataset> open_source(const std::string& path, const data_specification& data,
                                           const model_specification& model) {
  if (data.kind == "text" || data.kind == "tokens")
    return open_tokens(path, data, model);
  if (data.kind == "images")
    return open_images(path, model);
  if (data.kind == "image_folder")
    return open_image_folder(path, data, model);
  if (data.kind == "columns")
    return open_columns(path, model);
  if (data.kind == "synthetic")
    return make_synthetic(data, model);
  throw data_error("data of kind \"" + data.kind + "\" is not known");
}

/// A file or folder of this machine, which jobs may read.
std::string path_of_source(const std::string& named, const std::vector<fs::path>& folders) {
  try {
    if (is_url(named))
      return fetched(named, {.store = {.places = folders}}).string();
    require_within(named, folders);
    return named;
  } catch (const input_error& e) {
    fail_data(named, e.reason);
  } catch (const store_error& e) {
    throw data_error(std::string("data ") + e.what());
  }
}

} // namespace

void check_extents(const dataset& data, std::uint64_t index, std::size_t input, std::size_t target,
                   std::size_t right_input, std::size_t right_target) {
  if (index >= data.size() || (input != right_input && input != 0) || target != right_target)
    throw std::out_of_range("sample " + std::to_string(index) + " of " + std::to_string(data.size()) + " into " +
                            std::to_string(input) + " and " + std::to_string(target) + " values");
}

std::shared_ptr<const dataset> load_dataset(const data_specification& data, const model_specification& model,
                                            const std::vector<fs::path>& folders) {
  std::vector<std::string> paths;
  for (const auto& x : data.source)
    paths.push_back(x.path);
  if (paths.empty())
    paths.push_back(data.path);
  std::vector<std::shared_ptr<const dataset>> parts;
  for (const auto& named : paths) {
    const auto path = data.kind == "synthetic" ? named : path_of_source(named, folders);
    parts.push_back(open_source(path, data, model));
    if (const auto size = parts.back()->size(); data.validation >= size)
      fail_data(path, "has " + std::to_string(size) + " samples, and " + std::to_string(data.validation) +
                          " are to be kept for validation");
  }
  return parts.size() == 1 ? parts.front() : std::make_shared<joined_dataset>(std::move(parts));
}

} // namespace parcae
