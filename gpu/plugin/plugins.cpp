#include "gpu/plugin/plugins.hpp"

#include "gpu/plugin/plugin_models.hpp"
#include "protocols/base/digest.hpp"
#include "protocols/base/input_file.hpp"
#include "protocols/base/locks.hpp"
#include "protocols/base/printable.hpp"

#include <boost/json.hpp>

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <span>
#include <string_view>
#include <system_error>

namespace parcae {

namespace json = boost::json;

namespace {

constexpr std::uint64_t library_limit_bytes = 1 << 30;

struct opened_library {
  std::string name; ///< of its file, for messages
  std::span<const plugin::named_model> models;
};

parcae::mutex guard;
std::map<std::string, opened_library> opened GUARDED_BY(guard); // by digest; only grows

[[noreturn]] void fail(const std::string& where, const std::string& what) {
  throw exported_model_error(printable(where + " " + what, 1000));
}

[[noreturn]] void fail_by(const std::string& where, const char* what) {
  fail(where, std::string("cannot be copied to memory: ") + what + ": " + std::system_category().message(errno));
}

/// The descriptor of a sealed copy of the file.
int copy_of(const std::filesystem::path& file, const std::string& bytes) {
  const auto where = file.string();
  const int copy = memfd_create(file.filename().c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (copy < 0)
    fail_by(where, "memfd_create");
  for (std::size_t done = 0; done < bytes.size();) {
    const auto n = ::write(copy, bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno != EINTR)
      fail_by(where, "write");
    done += n < 0 ? 0 : static_cast<std::size_t>(n);
  }
  if (fcntl(copy, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) != 0)
    fail_by(where, "seals");
  return copy;
}

opened_library open_copy(const std::filesystem::path& file, int copy) {
  const auto where = file.string();
  const auto path = "/proc/self/fd/" + std::to_string(copy);
  const auto handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    const auto* text = dlerror();
    std::string why = text ? text : "unknown error";
    if (why.starts_with(path + ": "))
      why.erase(0, path.size() + 2);
    fail(where, "cannot be opened: " + why);
  }
  const auto* library = static_cast<const plugin::library*>(dlsym(handle, "parcae_plugin"));
  if (!library)
    fail(where, "is no plug-in of Parcae: it has no PARCAE_PLUGIN");
  if (const std::string_view build = library->build; build != PARCAE_PLUGIN_BUILD)
    fail(where, "was built for " + std::string(build.substr(0, 100)) +
                    ", this node is " PARCAE_PLUGIN_BUILD "; build it again with this node's header and LibTorch");
  return {file.filename().string(), {library->models, library->count}};
}

opened_library library_of(const std::string& digest) {
  const lock held(guard);
  const auto found = opened.find(digest);
  if (found == opened.end())
    fail("the plug-in with SHA-256 " + digest, "is not open here; start this node with `--plugin FILE`");
  return found->second;
}

plugin::model make(const opened_library& library, const std::string& name, const plugin::arguments& arguments) {
  std::string names;
  for (const auto& x : library.models) {
    if (name == x.name)
      try {
        return x.make(arguments);
      } catch (const std::exception& e) {
        fail(library.name, "cannot make " + name + ": " + e.what());
      }
    names += (names.empty() ? "" : ", ") + std::string(x.name);
  }
  fail(library.name, "has no model " + name + "; it has " + names);
}

std::string digits(double x) {
  std::array<char, 40> text{};
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), x).ptr};
}

json::array json_of(const std::vector<plugin::tensor>& tensors) {
  constexpr const char* starts[] = {"zeros", "ones", "normal", "uniform"};
  json::array result;
  for (const auto& x : tensors)
    result.push_back(json::object{{"name", x.name},
                                  {"shape", json::array(x.shape.begin(), x.shape.end())},
                                  {"initial", starts[std::min<std::size_t>(static_cast<std::size_t>(x.initial), 3)]},
                                  {"scale", digits(x.scale)}}); // as text, so that no JSON library rounds it
  return result;
}

json::object json_of(const std::variant<plugin::tokens, plugin::images>& input) {
  if (const auto* x = std::get_if<plugin::images>(&input))
    return {{"kind", "images"}, {"channels", x->channels}, {"image", x->size}, {"classes", x->classes}};
  const auto& x = std::get<plugin::tokens>(input);
  json::object result{{"kind", "tokens"}, {"sequence", x.sequence}, {"vocabulary", x.vocabulary}};
  if (x.classes > 0)
    result.emplace("classes", x.classes);
  return result;
}

/// What take_described_plugin (protocols/model) reads.
json::object description_of(const std::string& name, const plugin::arguments& arguments, const plugin::model& model) {
  constexpr const char* losses[] = {"cross_entropy", "mean_squared_error", "in_last_layer"};
  json::object given;
  for (const auto& [key, value] : arguments)
    given.emplace(key, value);
  json::array layers;
  for (const auto& layer : model.layers) {
    const auto x = layer->facts();
    layers.push_back(json::object{{"name", x.name},
                                  {"parameters", json_of(x.parameters)},
                                  {"buffers", json_of(x.buffers)},
                                  {"output", json::array(x.output.begin(), x.output.end())},
                                  {"forward_flop", x.forward_flop},
                                  {"activation_values", x.activation_values}});
  }
  return {{"format", plugin_format},
          {"version", plugin_version},
          {"model", name},
          {"arguments", std::move(given)},
          {"input", json_of(model.input)},
          {"loss", losses[std::min<std::size_t>(static_cast<std::size_t>(model.loss), 2)]},
          {"mask_token", nullptr},
          {"layers", std::move(layers)}};
}

} // namespace

std::string open_plugin(const std::filesystem::path& file) {
  std::string bytes;
  try {
    bytes = contents_of(file, library_limit_bytes);
  } catch (const input_error& e) {
    throw exported_model_error(e.what());
  }
  sha256 hash;
  hash.add(std::string_view(bytes));
  auto digest = hash.hexadecimal();
  const lock held(guard);
  if (!opened.contains(digest))
    opened.emplace(digest, open_copy(file, copy_of(file, bytes)));
  return digest;
}

std::string describe_plugin_model(const std::string& digest, const std::string& model,
                                  const std::map<std::string, std::string>& arguments) {
  const auto library = library_of(digest);
  auto result = description_of(model, arguments, make(library, model, arguments));
  result.emplace("plugin", digest);
  auto text = json::serialize(result);
  model_specification x{.kind = "plugin", .path = library.name};
  take_described_plugin(x, text); // what is wrong with it is better said now than at submit
  return text;
}

plugin::model make_plugin_model(const model_specification& x) {
  const auto library = library_of(x.plugin);
  const auto said = exported_model_of(x);
  auto result = make(library, said->plugin_model, said->plugin_arguments);
  model_specification now{.kind = "plugin", .path = x.path};
  auto description = description_of(said->plugin_model, said->plugin_arguments, result);
  description.emplace("plugin", x.plugin);
  take_described_plugin(now, json::serialize(description));
  if (now.exported != x.exported)
    fail(library.name, "says something else of " + said->plugin_model + " than it did when " + x.path + " was written");
  return result;
}

} // namespace parcae
