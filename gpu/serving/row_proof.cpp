#include "gpu/serving/row_proof.hpp"

#include "protocols/model/seed.hpp"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <utility>

namespace parcae {

namespace {

constexpr std::size_t drawn_rows = 720;
constexpr std::uint64_t seed = 1;

/// Each row sees itself only. What its layers keep of a position is noted.
class lone_rows final : public row_caches {
public:
  at::Tensor attend(std::uint32_t layer, const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& values,
                    double) override {
    const auto whole = [](std::int64_t x) { return static_cast<std::size_t>(x); };
    const attention_shape shape{whole(queries.size(1)), whole(keys.size(1)), whole(keys.size(3))};
    if (const auto [known, is_new] = shapes.emplace(layer, shape); known->second != shape)
      throw row_proof_error("layer " + std::to_string(layer) + " attends more than once, in different shapes");
    return values.repeat_interleave(queries.size(1) / values.size(1), 1);
  }

  kept_shapes shapes;
};

/// One layer, and what it is tried on.
class tried_layer {
public:
  tried_layer(const model_specification& model, const model_description& description, std::uint32_t number,
              const layer& what, const tensor_device& on) :
      what_(what),
      on_(on) {
    const auto& of = description.layers[number];
    parameters_ = views_of(of, drawn({static_cast<std::int64_t>(of.parameters())}, number));
    buffers_ = initial_buffers(of, on);
    positions_ = whole_numbers(model.sequence, "position");
    if (number == 0) {
      input_ = whole_numbers(model.vocabulary, "token");
      return;
    }
    auto shape = description.layers[number - 1].output; // [sequence, …]
    shape.front() = 1;
    shape.insert(shape.begin(), drawn_rows);
    input_ = drawn(shape, description.layers.size() + number);
  }

  /// What becomes of the rows when they go through in passes of this size, in this order. As they were numbered.
  at::Tensor run(const std::vector<std::int64_t>& order, std::size_t size, lone_rows& caches) const {
    at::Tensor result;
    for (std::size_t begin = 0; begin < order.size(); begin += size) {
      std::vector<std::int64_t> places;
      for (std::size_t i = 0; i < size; ++i) // the last pass has rows for the second time
        places.push_back(order[(begin + i) % order.size()]);
      const auto index = at::tensor(places, at::kLong).to(on_.place());
      const row_context rows{positions_.index_select(0, index), &caches};
      const auto output = what_.forward(parameters_, input_.index_select(0, index),
                                        {.training = false, .buffers = buffers_, .rows = &rows, .on = on_});
      if (!result.defined()) {
        auto shape = output.sizes().vec();
        shape.front() = drawn_rows;
        result = output.new_empty(shape);
      }
      result.index_copy_(0, index, output);
    }
    return result;
  }

private:
  at::Tensor drawn(const std::vector<std::int64_t>& shape, std::uint64_t what) const {
    auto result = at::empty(shape, on_.floats());
    on_.compute().draw_normal(on_.values_of(result), static_cast<std::size_t>(result.numel()),
                              mix_seed(seed, "row_proof", {what}), 0.1f, 0);
    return result;
  }

  at::Tensor whole_numbers(std::uint32_t end, const char* what) const {
    std::mt19937_64 draw(mix_seed(seed, what, {}));
    auto result = at::empty({static_cast<std::int64_t>(drawn_rows), 1}, at::kLong);
    for (std::size_t i = 0; i < drawn_rows; ++i)
      result.data_ptr<std::int64_t>()[i] = static_cast<std::int64_t>(draw() % end);
    return result.to(on_.place());
  }

  const layer& what_;
  const tensor_device on_;
  std::vector<at::Tensor> parameters_;
  at::Tensor buffers_, input_, positions_;
};

/// As numbered, and twice shuffled.
std::vector<std::vector<std::int64_t>> orders() {
  std::vector<std::int64_t> order(drawn_rows);
  std::iota(order.begin(), order.end(), 0);
  std::vector<std::vector<std::int64_t>> result{order};
  std::mt19937_64 draw(seed);
  for (int i = 0; i < 2; ++i) {
    std::shuffle(order.begin(), order.end(), draw);
    result.push_back(order);
  }
  return result;
}

bool same_bits(const at::Tensor& x, const at::Tensor& y) {
  const auto bits = [](const at::Tensor& z) { return z.view(z.scalar_type() == at::kFloat ? at::kInt : at::kShort); };
  return at::equal(bits(x), bits(y));
}

/// The layers of a model, of those that are alike the first.
class tried_layers {
public:
  tried_layers(const model_specification& model, const tensor_device& on) :
      description_(describe(model)), layers_(make_layers(model, on)) {
    std::map<std::vector<std::vector<std::int64_t>>, std::uint32_t> known;
    for (std::uint32_t i = 0; i < layers_.size(); ++i) {
      std::vector<std::vector<std::int64_t>> key;
      for (const auto& tensor : description_.layers[i].tensors)
        key.push_back(tensor.shape);
      if (model.is_own()) // graphs may differ though tensors do not
        key.push_back({i});
      same_as_.push_back(known.emplace(std::move(key), i).first->second);
      if (same_as_[i] == i)
        tried_.emplace_back(i, tried_layer(model, description_, i, *layers_[i], on));
    }
  }

  /// Whether each row has the same bits in passes of `size`, in all orders; what it is then is the reference. If not,
  /// the layer's name is noted.
  bool take(std::uint32_t size) {
    reference_.clear();
    for (const auto& [number, layer] : tried_) {
      reference_.push_back(layer.run(orders_.front(), size, caches_));
      for (std::size_t i = 1; i < orders_.size() && size > 1; ++i)
        if (!same_bits(layer.run(orders_[i], size, caches_), reference_.back())) {
          note(size, number);
          return false;
        }
    }
    return true;
  }

  /// Whether they have the reference's bits, each in some other place.
  bool agree(std::uint32_t size) {
    for (std::size_t i = 0; i < tried_.size(); ++i)
      if (!same_bits(tried_[i].second.run(orders_.back(), size, caches_), reference_[i]))
        return false;
    return true;
  }

  kept_shapes shapes() const {
    kept_shapes result;
    for (std::uint32_t i = 0; i < same_as_.size(); ++i)
      if (const auto x = caches_.shapes.find(same_as_[i]); x != caches_.shapes.end())
        result.emplace(i, x->second);
    return result;
  }

  const std::string& problems() const { return problems_; }

private:
  void note(std::uint32_t size, std::uint32_t number) {
    problems_ += (problems_.empty() ? "" : ", ") + std::string("in passes of ") + std::to_string(size) + " in " +
                 description_.layers[number].name;
  }

  const model_description description_;
  const std::vector<std::unique_ptr<layer>> layers_;
  const std::vector<std::vector<std::int64_t>> orders_ = orders();
  std::vector<std::uint32_t> same_as_; ///< by layer
  std::vector<std::pair<std::uint32_t, tried_layer>> tried_;
  std::vector<at::Tensor> reference_; ///< by tried layer
  lone_rows caches_;
  std::string problems_;
};

} // namespace

std::uint32_t row_proof::size_for(std::size_t rows) const {
  return *std::ranges::lower_bound(sizes, rows);
}

row_proof prove_rows(const model_specification& model, const tensor_device& on,
                     std::initializer_list<std::uint32_t> candidates, std::initializer_list<std::uint32_t> others) {
  const c10::NoGradGuard no_gradient;
  tried_layers layers(model, on);
  const auto* const reference = std::ranges::find_if(candidates, [&](auto size) { return layers.take(size); });
  if (reference == candidates.end())
    throw row_proof_error("it matters which row a row is: " + layers.problems());
  row_proof result{*reference, {*reference}, layers.shapes()};
  for (const auto size : others)
    if (size != *reference && layers.agree(size))
      result.sizes.push_back(size);
  std::ranges::sort(result.sizes);
  return result;
}

} // namespace parcae
