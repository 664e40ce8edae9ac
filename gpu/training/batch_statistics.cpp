#include "gpu/training/batch_statistics.hpp"

#include <ATen/ATen.h>

namespace parcae {

batch_statistics::batch_statistics(const model_description& model, std::uint32_t first, std::uint32_t last,
                                   std::uint32_t micro_batches, const tensor_device& on) :
    first_(first),
    on_(on), offset_{0} {
  for (auto i = first; i < last; ++i) {
    offset_.push_back(offset_.back() + static_cast<std::int64_t>(model.layers[i].buffer_values()));
    variances_.push_back(variances_in(model.layers[i], on));
  }
  if (offset_.back() > 0)
    values_ = at::empty({micro_batches, offset_.back()}, on.floats());
}

at::Tensor batch_statistics::row(std::uint32_t layer, std::uint32_t micro_batch) {
  const auto begin = offset_[layer - first_], end = offset_[layer - first_ + 1];
  if (begin == end)
    return {};
  return values_.select(0, micro_batch).narrow(0, begin, end - begin);
}

void batch_statistics::gather(communicator& comm, std::span<const std::uint32_t> group,
                              std::span<const replica_range> owned, std::uint32_t self, std::uint64_t step,
                              std::chrono::milliseconds limit) {
  if (!values_.defined())
    return;
  const auto rows_of = [&](std::size_t d) {
    return on_.memory_of(values_.narrow(0, owned[d].first, owned[d].last - owned[d].first)); // whole rows: contiguous
  };
  const tag what{channel::statistics, step, 0};
  std::vector<ticket> under_way;
  for (std::size_t d = 0; d < group.size(); ++d)
    if (d != self)
      under_way.push_back(comm.receive(group[d], what, rows_of(d)));
  for (std::size_t d = 0; d < group.size(); ++d)
    if (d != self)
      under_way.push_back(comm.send(group[d], what, rows_of(self)));
  comm.give(under_way);
  for (const auto& x : under_way)
    comm.wait(x, limit);
}

void batch_statistics::add_to(at::Tensor& buffers, std::uint32_t layer) const {
  const auto begin = offset_[layer - first_], end = offset_[layer - first_ + 1];
  if (begin == end)
    return;
  update_buffers(buffers, values_.narrow(1, begin, end - begin), variances_[layer - first_]);
}

} // namespace parcae
