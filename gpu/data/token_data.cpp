// Data of kind "text" and "tokens": numbers one after the other, in any number of files.

#include "gpu/data/datasets.hpp"
#include "gpu/data/npy.hpp"

#include <algorithm>
#include <optional>

namespace parcae {

namespace {

/// A run of tokens in one file.
struct segment {
  std::size_t file = 0;
  std::uint64_t at = 0;    ///< byte of the first
  std::uint64_t first = 0; ///< number of the first among all tokens
  std::uint64_t count = 0;
  unsigned bytes = 1; ///< of a token
  bool is_signed = false;
};

std::int64_t value_of(const std::byte* from, const segment& x) {
  std::uint64_t value = 0;
  for (auto i = x.bytes; i-- > 0;)
    value = value << 8 | static_cast<std::uint64_t>(from[i]);
  if (const auto unused = 64 - 8 * x.bytes; x.is_signed)
    return static_cast<std::int64_t>(value << unused) >> unused;
  return static_cast<std::int64_t>(value); // from 2^63 on negative, and refused as such
}

class token_dataset final : public file_dataset {
public:
  token_dataset(const std::filesystem::path& path, const data_specification& data, const model_specification& model) :
      file_dataset(path), sequence_(model.sequence), vocabulary_(model.vocabulary) {
    const bool text = data.kind == "text";
    for (std::size_t i = 0; i < files_.all().size(); ++i) {
      const bool npy = files_.path_of(i).extension() == ".npy";
      if (text && npy)
        fail_data(files_.path_of(i), "is a file of NumPy, no text: data.kind = \"tokens\" reads the numbers in it");
      add(i, text ? 1 : data.token_bytes, npy);
    }
    if (by_row_ ? tokens_ == 0 : tokens_ <= sequence_)
      fail_data(path, "has " + std::to_string(tokens_) + " tokens, one sample needs " + std::to_string(sequence_ + 1));
    // All of what is held; of large data some, so that files of another type are refused at once.
    constexpr std::uint64_t tried = 64;
    std::vector<std::int64_t> target(sequence_);
    const auto step = files_.held() ? 1 : std::max<std::uint64_t>(1, size() / tried);
    if (!text)
      for (std::uint64_t i = 0; i < size(); i += step)
        read(i, {}, target);
    if (!text && files_.held() && !by_row_) // the first one is no target, the last ones may be in no sample
      for (auto from : {std::uint64_t{0}, size() * sequence_})
        tokens_at(from, std::min(tokens_ - from, sequence_));
  }

  std::uint64_t size() const override { return by_row_ ? tokens_ / (sequence_ + 1) : (tokens_ - 1) / sequence_; }

  void read(std::uint64_t index, std::span<std::int64_t> input, std::span<std::int64_t> target) const override {
    check_extents(*this, index, input.size(), target.size(), sequence_, sequence_);
    const auto tokens = tokens_at(first_of(index), sequence_ + 1);
    std::copy_n(tokens.begin(), input.size(), input.begin());
    std::copy_n(tokens.begin() + 1, target.size(), target.begin());
  }

  void expect(std::uint64_t index) const override {
    const auto& x = segment_of(first_of(index));
    files_.expect(x.file, x.at + (first_of(index) - x.first) * x.bytes, (sequence_ + 1) * x.bytes);
  }

  std::string file_of(std::uint64_t index) const override {
    return files_.path_of(segment_of(first_of(index)).file).string();
  }

private:
  void add(std::size_t file, unsigned bytes, bool npy) {
    const auto size = files_.all()[file].size;
    segment x{file, 0, tokens_, size / bytes, bytes, false};
    std::optional<bool> rows;
    if (npy) {
      std::vector<std::byte> begin(std::min<std::uint64_t>(size, npy_header_limit));
      files_.read(file, 0, begin);
      try {
        const auto header = parse_npy(begin, size);
        x = {file, header.values_at, tokens_, header.values(), header.bytes, header.is_signed};
        if (rows = header.shape.size() == 2; *rows && header.shape[1] != sequence_ + 1)
          fail_data(files_.path_of(file), "has rows of " + std::to_string(header.shape[1]) + " tokens, samples have " +
                                              std::to_string(sequence_ + 1) + ": model.sequence and one to predict");
      } catch (const data_error&) {
        throw;
      } catch (const std::runtime_error& e) {
        fail_data(files_.path_of(file), e.what());
      }
    } else if (size % bytes != 0) {
      fail_data(files_.path_of(file), "has " + std::to_string(size) + " bytes, tokens have " + std::to_string(bytes));
    }
    const bool by_row = rows.value_or(false);
    if (!segments_.empty() && by_row != by_row_)
      fail_data(files_.path_of(file), "has rows that are samples, others beside it have not");
    by_row_ = by_row;
    tokens_ += x.count;
    if (x.count > 0)
      segments_.push_back(x);
  }

  std::uint64_t first_of(std::uint64_t index) const { return index * (by_row_ ? sequence_ + 1 : sequence_); }

  const segment& segment_of(std::uint64_t token) const {
    return *(std::ranges::upper_bound(segments_, token, {}, &segment::first) - 1);
  }

  /// Checked.
  std::vector<std::int64_t> tokens_at(std::uint64_t first, std::uint64_t count) const {
    std::vector<std::int64_t> result;
    result.reserve(count);
    std::vector<std::byte> bytes;
    for (const auto* x = &segment_of(first); count > 0; ++x) {
      const auto skipped = first - x->first, here = std::min(count, x->count - skipped);
      bytes.resize(here * x->bytes);
      files_.read(x->file, x->at + skipped * x->bytes, bytes);
      for (std::uint64_t i = 0; i < here; ++i)
        result.push_back(checked(value_of(bytes.data() + i * x->bytes, *x), *x, skipped + i));
      first += here;
      count -= here;
    }
    return result;
  }

  std::int64_t checked(std::int64_t value, const segment& x, std::uint64_t number) const {
    if (value < 0 || value >= vocabulary_)
      fail_sample(files_.path_of(x.file), "token " + std::to_string(number) + " is " + std::to_string(value) +
                                              ", the vocabulary has " + std::to_string(vocabulary_) + " (at byte " +
                                              std::to_string(x.at + number * x.bytes) + ", of " +
                                              std::to_string(x.bytes) + " bytes)");
    return value;
  }

  std::uint64_t sequence_;
  std::int64_t vocabulary_;
  std::vector<segment> segments_;
  std::uint64_t tokens_ = 0;
  bool by_row_ = false; ///< a row is a sample
};

} // namespace

std::shared_ptr<const dataset> open_tokens(const std::filesystem::path& path, const data_specification& data,
                                           const model_specification& model) {
  return std::make_shared<token_dataset>(path, data, model);
}

} // namespace parcae
