#pragma once

// Version 0 from files of others: `model.weights` of a job. The names of the tensors are those of the library that the
// model comes from (published_layout), or an exported model's own. Everything here blocks on the disk; torch-free.

#include "gpu/checkpoint/safetensors.hpp"
#include "protocols/model/exported_model.hpp"
#include "protocols/model/model_description.hpp"

#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <vector>

namespace parcae {

/// One line: the file, what is wrong with it, and what to do.
struct weights_error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Tensors by name, in one safetensors file or in several. Not thread-safe; all methods throw weights_error.
class weight_source {
public:
  /// A safetensors file; an index (model.safetensors.index.json), with the files that it names beside it; or a folder
  /// with one of them under Hugging Face's names. Reads headers only.
  explicit weight_source(const std::filesystem::path& path);

  /// The same, where the files that an index names are elsewhere. `where`: for messages.
  weight_source(const std::filesystem::path& path, std::string where,
                std::function<std::filesystem::path(const std::string& name)> beside);

  const std::string& where() const { return where_; } ///< for messages
  std::vector<std::string> names() const;
  safetensors_entry entry(const std::string& name) const;
  void read(const std::string& name, std::span<float> to); ///< as safetensors_file::read_as_float

  std::vector<std::filesystem::path> paths() const;        ///< of all files that are read
  std::filesystem::path config() const { return config_; } ///< of the config.json beside them, whether there or not

private:
  void open(const std::filesystem::path& file);
  void open_index(const std::filesystem::path& index);

  std::string where_;
  std::function<std::filesystem::path(const std::string& name)> beside_; ///< of an index
  std::filesystem::path config_;
  std::map<std::filesystem::path, safetensors_file> files_;
  std::map<std::string, safetensors_file*> tensors_;
};

/// Opens a source by its spelling: a path on this machine, or the URL of a safetensors file, of an index, or of an
/// s3:// prefix with one of them, which fetched() copies. `places`: URLs that may be asked, as in store_options. Throws
/// weights_error.
std::unique_ptr<weight_source> open_weights(const std::string& spelling,
                                            const std::vector<std::filesystem::path>& places = {});

/// Copies what a URL names, if it is not what is here; open_weights() then asks nobody. Throws weights_error.
void fetch_weights(const std::string& url, const std::vector<std::filesystem::path>& places,
                   const std::stop_token& stop);

/// Version 0 of a model whose specification names weights. Not thread-safe; all methods throw weights_error.
class initial_weights {
public:
  /// Opens them and compares all names, shapes and types with the model's: nothing is missing or superfluous, but what
  /// libraries leave out (tied tensors) or add (is_left_out). Reads no values. `folders`: as in load_dataset.
  explicit initial_weights(const model_specification& x, const std::vector<std::filesystem::path>& folders = {});

  const model_description& model() const { return model_; }

  /// A layer's flat parameters and flat buffers, as many values as it has, compared with the digest that the
  /// specification has of it: that of when the job was submitted.
  void read(std::uint32_t layer, std::span<float> parameters, std::span<float> buffers);

  /// SHA-256 of what read() gives, parameters then buffers, hexadecimal.
  std::string digest(std::uint32_t layer);

private:
  /// Where a tensor of the model is.
  struct place {
    std::string name;
    bool transposed = false;
  };

  void find_all();
  void require(const tensor_description& tensor, const std::string& stored, bool own_layout);
  void compare_frozen(const stored_tensor& tensor, const std::string& stored);
  void compare_ties();
  std::string read_values(std::uint32_t layer, std::span<float> parameters, std::span<float> buffers);
  void read_tensor(const tensor_description& tensor, std::span<float> to);
  [[noreturn]] void fail(const std::string& what) const;

  const model_specification specification_;
  model_description model_;
  std::unique_ptr<weight_source> source_;
  std::map<std::string, place> places_; ///< by the model's name
};

/// At submit: x.weights becomes an absolute path, unless it is a URL, x.weights_digests what is there. Throws
/// weights_error.
void take_weights(model_specification& x);

} // namespace parcae
