#include "gpu/checkpoint/losses.hpp"

#include <algorithm>
#include <span>
#include <stdexcept>
#include <vector>

namespace parcae {

namespace {

loss_block read_block(const object_store& from, const std::string& name, std::uint64_t first) {
  const auto file = from.open(name);
  if (file->size() > loss_block_limit_bytes)
    throw std::runtime_error("it is too long for a block of losses");
  std::vector<char> bytes(file->size());
  file->read(0, std::as_writable_bytes(std::span(bytes)));
  auto result = decode_loss_block(bytes);
  if (result.first != first)
    throw std::runtime_error("it is a block of other steps");
  return result;
}

} // namespace

void put_losses(object_store& run, loss_block x) {
  const auto folder = run.below(losses_folder);
  const auto name = name_of_loss_block(x.first);
  const auto all_known = std::ranges::all_of(x.all, &step_record::is_known);
  const auto is_there = [&] {
    const auto stored = folder->list();
    return std::ranges::any_of(stored.objects, [&](const auto& y) { return y.name == name; });
  };
  if (!all_known && is_there())
    try {
      const auto there = read_block(*folder, name, x.first);
      for (std::size_t i = 0; i < std::min(x.all.size(), there.all.size()); ++i)
        if (!x.all[i].is_known())
          x.all[i] = there.all[i];
    } catch (const store_error&) { // it may be read later: what it has is not to be lost
      throw;
    } catch (const std::runtime_error&) { // it is worth nothing
    }
  const auto bytes = encode(x);
  const auto file = folder->create(name, bytes.size());
  file->write(std::as_bytes(std::span(bytes)));
  file->publish();
}

stored_losses read_losses(const object_store& run, std::uint64_t steps) {
  stored_losses result;
  const auto from = run.below(losses_folder);
  for (const auto& x : from->list().objects) {
    const auto first = loss_block_in(x.name);
    if (!first || *first >= steps)
      continue;
    try {
      const auto block = read_block(*from, x.name, *first);
      result.known.put(block, steps);
      result.samples = block.samples;
    } catch (const std::runtime_error& e) { // the other blocks may be good
      result.problem = from->place() + "/" + x.name + ": " + e.what();
    }
  }
  return result;
}

std::shared_ptr<object_store> run_above(const std::string& checkpoint, const store_options& options) {
  const auto slash = checkpoint.rfind('/');
  return slash == std::string::npos || slash == 0 || checkpoint[slash - 1] == '/'
             ? nullptr
             : open_store(checkpoint.substr(0, slash), options);
}

void remove_losses(object_store& run) {
  const auto from = run.below(losses_folder);
  for (const auto& x : from->list().objects)
    if (loss_block_in(x.name))
      from->remove(x.name);
}

} // namespace parcae
