// Version 0 from safetensors files of others: what is read, bit by bit, and what is refused by name.

#include "gpu/checkpoint/published_layout.hpp"
#include "gpu/checkpoint/safetensors.hpp"
#include "gpu/checkpoint/weights.hpp"
#include "protocols/base/digest.hpp"
#include "tests/support/files.hpp"
#include "tests/support/names.hpp"
#include "tests/support/thrown_by.hpp"

#include <boost/json.hpp>

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>

namespace parcae {
namespace {

namespace fs = std::filesystem;

/// A tensor as a file has it.
struct given {
  std::string name;
  std::vector<std::int64_t> shape;
  std::vector<float> values;
  std::string type = "F32"; ///< or BF16, F16; all values below are exact in all of them
};

std::string bytes_of(const given& x) {
  std::string result;
  for (const auto value : x.values) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    if (x.type == "F32" || x.type == "I32") {
      result.append(reinterpret_cast<const char*>(&value), sizeof value);
      continue;
    }
    std::uint16_t narrow = static_cast<std::uint16_t>(bits >> 16);
    if (x.type == "F16" && value != 0)
      narrow = static_cast<std::uint16_t>((bits >> 16 & 0x8000) | (((bits >> 23 & 0xff) - 112) << 10) |
                                          (bits >> 13 & 0x3ff));
    result.append(reinterpret_cast<const char*>(&narrow), sizeof narrow);
  }
  return result;
}

/// model.weights of a GPT of one block of width 4.
class weights_test : public testing::Test {
protected:
  weights_test() {
    model = {.kind = "gpt", .layers = 1, .width = 4, .heads = 2, .sequence = 3, .vocabulary = 5};
    for (const auto& layer : describe(model).layers)
      for (const auto& tensor : layer.tensors)
        if (tensor.name != "lm_head.weight")
          published.push_back(values_for({tensor.name, published_shape(model, tensor), {}}));
  }

  /// Small multiples of 1/8, others in each tensor.
  static given values_for(given x) {
    std::int64_t n = 1;
    for (auto extent : x.shape)
      n *= extent;
    for (std::int64_t i = 0; i < n; ++i)
      x.values.push_back(static_cast<float>((static_cast<std::int64_t>(x.name.size()) * 31 + i * 7) % 200 - 100) / 8);
    return x;
  }

  fs::path write(const std::vector<given>& tensors, const std::string& name = "model.safetensors") const {
    std::vector<safetensors_entry> entries;
    for (const auto& x : tensors)
      entries.push_back({x.name, x.shape, x.type});
    std::ofstream file(folder / name, std::ios::binary);
    file << safetensors_header(entries, {{"format", "pt"}});
    for (const auto& x : tensors)
      file << bytes_of(x);
    return folder / name;
  }

  void put(const std::string& name, const std::string& text) const { std::ofstream(folder / name) << text; }

  /// The given tensors as the model's layers have them.
  std::vector<std::vector<float>> expected() const {
    std::vector<std::vector<float>> result;
    for (const auto& layer : describe(model).layers) {
      auto& flat = result.emplace_back();
      for (const auto& tensor : layer.tensors) {
        const auto name = tensor.name == "lm_head.weight" ? "transformer.wte.weight" : tensor.name;
        const auto& from = *std::ranges::find(published, name, &given::name);
        if (!is_transposed(model, tensor.name)) {
          flat.insert(flat.end(), from.values.begin(), from.values.end());
          continue;
        }
        for (std::int64_t out = 0; out < tensor.shape[0]; ++out)
          for (std::int64_t in = 0; in < tensor.shape[1]; ++in)
            flat.push_back(from.values[static_cast<std::size_t>(in * tensor.shape[0] + out)]);
      }
    }
    return result;
  }

  /// What a node reads, after it was submitted.
  std::vector<std::vector<float>> read(const fs::path& from) {
    auto x = model;
    x.weights = from.string();
    take_weights(x);
    initial_weights weights(x);
    std::vector<std::vector<float>> result;
    for (std::uint32_t i = 0; i < weights.model().layers.size(); ++i) {
      auto& flat = result.emplace_back(weights.model().layers[i].parameters());
      weights.read(i, flat, {});
    }
    return result;
  }

  std::string error_of(const fs::path& from) {
    return thrown_by<weights_error>([&] { read(from); });
  }

  given& tensor(const std::string& name) { return *std::ranges::find(published, name, &given::name); }

  own_folder folder;
  model_specification model;
  std::vector<given> published; ///< as Hugging Face's GPT-2 has it: Conv1D [in, out], the tied head left out
};

// given: files of each type, whole and in shards, with and without the body's prefix, with masks and both uses of the
// tied tensor / expected: the same bits, Conv1D transposed
TEST_F(weights_test, are_read_as_their_library_has_them) {
  const auto wanted = expected();
  EXPECT_EQ(read(write(published)), wanted);
  for (const auto* type : {"BF16", "F16"}) {
    auto narrow = published;
    for (auto& x : narrow)
      x.type = type;
    EXPECT_EQ(read(write(narrow)), wanted) << type;
  }
  auto body = published;
  for (auto& x : body)
    x.name = x.name.substr(std::string("transformer.").size());
  body.push_back({"h.0.attn.bias", {1, 1, 3, 3}, std::vector<float>(9, 1)});
  EXPECT_EQ(read(write(body)), wanted) << "as GPT2Model was saved years ago";
  auto both = published;
  both.push_back({"lm_head.weight", {5, 4}, tensor("transformer.wte.weight").values});
  EXPECT_EQ(read(write(both)), wanted);
  auto other = published;
  std::ranges::find(other, "transformer.wte.weight", &given::name)->name = "lm_head.weight";
  EXPECT_EQ(read(write(other)), wanted) << "save_model keeps the first by name";
  fs::remove(folder / "model.safetensors");
  write({published.begin(), published.begin() + 5}, "a.safetensors");
  write({published.begin() + 5, published.end()}, "b.safetensors");
  boost::json::object map;
  for (std::size_t i = 0; i < published.size(); ++i)
    map[published[i].name] = i < 5 ? "a.safetensors" : "b.safetensors";
  put("model.safetensors.index.json", boost::json::serialize(boost::json::object{{"weight_map", map}}));
  EXPECT_EQ(read(folder), wanted);
  EXPECT_EQ(read(folder / "model.safetensors.index.json"), wanted);
}

// given: what `parcae export` writes for PyTorch, linear layers as torch.nn.Linear has them / expected: read as it is
TEST_F(weights_test, of_our_own_layout_are_not_transposed) {
  std::vector<given> own;
  std::vector<std::vector<float>> wanted;
  for (const auto& layer : describe(model).layers) {
    wanted.emplace_back();
    for (const auto& x : layer.tensors) {
      const auto values = values_for({x.name == "lm_head.weight" ? "transformer.wte.weight" : x.name, x.shape, {}});
      if (x.name != "lm_head.weight")
        own.push_back(values);
      wanted.back().insert(wanted.back().end(), values.values.begin(), values.values.end());
    }
  }
  EXPECT_EQ(read(write(own)), wanted);
}

// given: weights / expected: a digest of each layer's flat values; they stay the same in another type or in shards;
// files that changed since are refused
TEST_F(weights_test, are_known_by_their_values) {
  auto x = model;
  x.weights = write(published).string();
  take_weights(x);
  ASSERT_EQ(x.weights_digests.size(), 3u);
  sha256 digest;
  digest.add(std::as_bytes(std::span(expected()[1])));
  EXPECT_EQ(x.weights_digests[1], digest.hexadecimal());
  auto narrow = published;
  for (auto& t : narrow)
    t.type = "F16";
  write(narrow);
  auto again = model;
  again.weights = folder.string() + "/";
  take_weights(again);
  EXPECT_EQ(again.weights_digests, x.weights_digests);
  EXPECT_EQ(again.weights, folder.string());
  tensor("transformer.h.0.ln_1.bias").values[2] += 1;
  write(published);
  initial_weights weights(x);
  std::vector<float> flat(weights.model().layers[1].parameters()), first(weights.model().layers[0].parameters());
  EXPECT_NO_THROW(weights.read(0, first, {}));
  EXPECT_THAT(thrown_by<weights_error>([&] { weights.read(1, flat, {}); }),
              HasSubstr("model.safetensors has other values of block 0 than when the job was submitted"));
}

// given: what does not fit the model / expected: one line that names the file and the tensor
TEST_F(weights_test, what_does_not_fit_is_named) {
  const auto with = [&](auto&& change) {
    auto tensors = published;
    change(tensors);
    const auto error = error_of(write(tensors));
    EXPECT_THAT(error, HasSubstr((folder / "model.safetensors").string() + " has "));
    EXPECT_EQ(error.find('\n'), error.npos);
    return error;
  };
  EXPECT_THAT(with([](auto& x) { x.erase(x.begin()); }), HasSubstr("no tensor transformer.wte.weight"));
  EXPECT_THAT(with([](auto& x) { x.erase(x.begin() + 2, x.begin() + 4); }),
              HasSubstr("no tensor transformer.h.0.ln_1.bias, nor 1 other"));
  EXPECT_THAT(with([](auto& x) {
                x.push_back({"score.weight", {1}, {1}});
              }),
              HasSubstr("a tensor score.weight, which the job's model has not"));
  EXPECT_THAT(with([](auto& x) { x.push_back({"ln\x1b.weight", {1}, {1}}); }), HasSubstr("a tensor ln?.weight"));
  EXPECT_THAT(with([](auto& x) {
                x[1].shape = {4, 3};
              }),
              HasSubstr("a tensor transformer.wpe.weight of shape [4, 3], the job's model wants [3, 4]"));
  EXPECT_THAT(with([](auto& x) { x[1].type = "I32"; }), HasSubstr("transformer.wpe.weight of type I32"));
  EXPECT_THAT(with([](auto& x) {
                x.push_back({"wpe.weight", {3, 4}, std::vector<float>(12)});
              }),
              HasSubstr("two tensors for transformer.wpe.weight"));
  EXPECT_THAT(with([](auto& x) {
                x.push_back({"lm_head.weight", {5, 4}, std::vector<float>(20)});
              }),
              HasSubstr("other values in lm_head.weight than in transformer.wte.weight, and they are tied"));
  model.tied_embeddings = false;
  EXPECT_THAT(with([](auto&) {}), HasSubstr("no tensor lm_head.weight; is it tied (model.tied_embeddings)?"));
}

// given: sources that are none / expected: one line, nothing is opened beyond the folder
TEST_F(weights_test, sources_are_checked) {
  for (const auto* url : {"ftp://host/model.safetensors", "hf://gpt2"})
    EXPECT_THAT(error_of(url), HasSubstr("is no URL"));
  EXPECT_THAT(error_of(folder), HasSubstr("has neither model.safetensors nor model.safetensors.index.json"));
  EXPECT_THAT(error_of(folder / "nothing"), HasSubstr("nothing cannot be opened"));
  const auto index = [&](const std::string& text) {
    put("model.safetensors.index.json", text);
    return error_of(folder);
  };
  for (const auto* text : {"", "[]", "{}", R"({"weight_map": 1})"})
    EXPECT_THAT(index(text), HasSubstr("is no index")) << text;
  for (const auto* file : {"../a", "/etc/passwd", "", "..", "."})
    EXPECT_THAT(index(boost::json::serialize(boost::json::object{{"weight_map", {{"a", file}}}})),
                HasSubstr("names no file beside it for a"));
  write(published, "a.safetensors");
  EXPECT_THAT(index(R"({"weight_map": {"nothing": "a.safetensors"}})"),
              HasSubstr("a.safetensors has no tensor nothing, which model.safetensors.index.json says it has"));
  write({published[0]}, "b.safetensors");
  EXPECT_THAT(index(R"({"weight_map": {"transformer.wte.weight": "a.safetensors", "x": "b.safetensors"}})"),
              HasSubstr("has a tensor transformer.wte.weight that another file has too"));
}

// given: config.json beside them / expected: what shapes do not tell is compared with the job
TEST_F(weights_test, a_config_beside_them_is_heeded) {
  write(published);
  put("config.json", R"({"model_type": "gpt2", "n_head": 2, "layer_norm_epsilon": 1e-05, "resid_pdrop": 0.5})");
  EXPECT_THAT(error_of(folder), IsEmpty());
  put("config.json", R"({"model_type": "gpt2", "n_head": 1})");
  EXPECT_THAT(error_of(folder), HasSubstr("config.json says n_head is 1, and it is 2 in the job's model"));
  put("config.json", R"({"model_type": "bert"})");
  EXPECT_THAT(error_of(folder), HasSubstr("config.json says model_type is \"bert\""));
}

// given: a node that lets jobs read one folder, a link that leads out of it / expected: refused
TEST_F(weights_test, are_below_what_a_node_lets_jobs_read) {
  auto x = model;
  x.weights = write(published).string();
  take_weights(x);
  EXPECT_NO_THROW(initial_weights(x, {folder}));
  fs::create_directory(folder / "inner");
  fs::create_symlink(folder / "model.safetensors", folder / "inner" / "model.safetensors");
  x.weights = (folder / "inner").string();
  EXPECT_NO_THROW(initial_weights(x, {}));
  EXPECT_THROW(initial_weights(x, {folder / "inner"}), weights_error);
}

// given: tensors that overlap, a gap, bytes after the last / expected: refused, as the format's own library does
TEST_F(weights_test, files_have_no_gaps) {
  const auto error = [&](const std::string& header, std::size_t bytes) {
    const std::uint64_t length = header.size();
    std::string text(sizeof length, '\0');
    std::memcpy(text.data(), &length, sizeof length);
    put("x", text + header + std::string(bytes, 'x'));
    return thrown_by([&] { safetensors_file file(folder / "x"); });
  };
  const auto two = [](int begin, int end) {
    return R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}, "b": {"dtype": "F32", "shape": [1], )"
           R"("data_offsets": [)" +
           std::to_string(begin) + ", " + std::to_string(end) + "]}}";
  };
  EXPECT_EQ(error(two(4, 8), 8), "");
  EXPECT_THAT(error(two(0, 4), 4), HasSubstr("overlap, or a gap"));
  EXPECT_THAT(error(two(2, 6), 6), HasSubstr("overlap, or a gap"));
  EXPECT_THAT(error(two(6, 10), 10), HasSubstr("overlap, or a gap"));
  EXPECT_THAT(error(two(4, 8), 12), HasSubstr("more bytes than its tensors"));
}

// given: every number of 16 bits / expected: by the definition of its format, exactly
TEST(narrow_numbers, are_widened_exactly) {
  for (std::uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const auto x = static_cast<std::uint16_t>(bits);
    const int exponent = x >> 10 & 31, fraction = x & 1023;
    const double sign = x & 0x8000 ? -1 : 1;
    const auto half = float_of_half(x);
    if (exponent == 31 && fraction > 0) {
      EXPECT_TRUE(std::isnan(half));
    } else {
      const double value = exponent == 31  ? HUGE_VAL
                           : exponent == 0 ? std::ldexp(fraction, -24)
                                           : std::ldexp(1024 + fraction, exponent - 25);
      ASSERT_EQ(half, sign * value) << bits;
      ASSERT_EQ(std::signbit(half), sign < 0) << bits;
    }
    ASSERT_EQ(std::bit_cast<std::uint32_t>(float_of_bfloat16(x)), bits << 16);
  }
}

} // namespace
} // namespace parcae
