// Graphs that the manager lets through, with numbers that no model has: what a client may send. No operator ends the
// process, which would end one worker after the other. Each runs in a child process, forward and backward.

#include "gpu/layers/bound_graph.hpp"
#include "protocols/model/exported_parts.hpp"
#include "tests/support/thrown_by.hpp"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/autograd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <limits>
#include <random>
#include <sstream>

namespace parcae {
namespace {

using origin = value_reference::origin;
using list = std::vector<exported_argument>;

constexpr auto least = std::numeric_limits<std::int64_t>::min(), most = std::numeric_limits<std::int64_t>::max();

exported_argument value(origin from, std::uint32_t index) {
  return {value_reference{from, index}};
}

exported_node node_of(const operator_schema* schema, own_operator own, list arguments = {}) {
  exported_node result;
  result.schema = schema;
  result.own = own;
  result.arguments = std::move(arguments);
  result.at = "m.py:1";
  return result;
}

/// What graphs have at hand: sizes of 0 and 1, numbers whose quotients overflow.
struct surroundings {
  std::vector<at::Tensor> parameters, constants;
  at::Tensor input = at::zeros({2, 3}, at::kLong);

  surroundings() {
    at::set_num_threads(1); // threads do not survive a fork
    for (const auto& shape : std::vector<std::vector<std::int64_t>>{
             {2, 3, 4}, {4, 4}, {3}, {}, {0, 3}, {1, 2, 3, 4}, {2, 0, 3, 4}, {2, 4, 3, 4}, {4, 2, 3}, {1, 1, 2, 3, 4}})
      parameters.push_back(at::ones(shape).requires_grad_());
    const std::vector<std::int64_t> extremes{least, -1, 0, 1, most, 2};
    const auto whole = at::tensor(extremes, at::kLong);
    constants = {whole.view({2, 3}),
                 at::tensor(std::vector<std::int64_t>{-1, 0, 1}, at::kLong),
                 at::full({}, -1, at::kLong),
                 at::full({}, least, at::kLong),
                 at::full({2, 3}, std::numeric_limits<std::int32_t>::min(), at::kInt),
                 at::full({2, 3}, -1, at::kInt),
                 at::ones({2, 3, 4}, at::kBool),
                 at::zeros({2, 3}, at::kByte),
                 at::full({2, 3}, std::numeric_limits<float>::infinity()),
                 at::zeros({0}, at::kLong)};
  }

  graph_frame frame() const {
    graph_frame result;
    result.parameters = parameters.size();
    result.constants = constants.size();
    return result;
  }

  /// Throws whatever is no crash.
  void run(const exported_graph& x) const {
    const bound_graph bound(x, 0, parameters.size(), 0, constants.size(), at::kCPU);
    const forward_pass pass{.position = {7, 3, 1}};
    const auto result = bound.run({parameters, constants, {}, {}, input, 0}, pass);
    if (result.requires_grad())
      torch::autograd::backward({result.sum()}, {});
  }
};

class draw {
public:
  draw(const operator_schema& of, std::uint64_t seed) : schema_(of), random_(seed) {}

  exported_graph graph(const surroundings& around) {
    exported_graph result;
    auto node = node_of(&schema_, own_operator::none);
    for (const auto& x : schema_.arguments)
      node.arguments.push_back(argument(x, around));
    result.nodes.push_back(std::move(node));
    if (schema_.makes_list)
      result.nodes.push_back(node_of(nullptr, own_operator::item, {value(origin::node, 0), {std::int64_t{0}}}));
    result.output = {origin::node, schema_.makes_list ? 1u : 0u};
    return result;
  }

private:
  template <class T>
  T one_of(const std::vector<T>& all) {
    return all[random_() % all.size()];
  }

  std::int64_t whole() {
    if (random_() % 3 == 0)
      return one_of<std::int64_t>({least, least + 1, most, most - 1, std::int64_t{1} << 62, std::int64_t{1} << 40,
                                   std::int64_t{1} << 32, std::int64_t{1} << 31, -(std::int64_t{1} << 31), 65'537});
    return static_cast<std::int64_t>(random_() % 8) - 3;
  }

  double real() {
    constexpr auto infinity = std::numeric_limits<double>::infinity();
    return one_of<double>({0, -0.0, 1, -1, 0.1, 0.5, 1e-300, -1e-300, 5e-324, 1e300, infinity, -infinity,
                           std::numeric_limits<double>::quiet_NaN(), 3e38, 9.3e18});
  }

  exported_argument tensor(const surroundings& around) {
    if (random_() % 3 == 0)
      return value(origin::constant, static_cast<std::uint32_t>(random_() % around.constants.size()));
    return value(origin::parameter, static_cast<std::uint32_t>(random_() % around.parameters.size()));
  }

  exported_argument argument(const operator_argument& x, const surroundings& around) {
    using enum argument_kind;
    if (x.kind == nothing || (x.optional && random_() % 2 == 0))
      return {};
    switch (x.kind) {
    case tensor:
      return tensor_of(x, around);
    case tensors:
      return {list{draw::tensor(around), draw::tensor(around)}};
    case whole:
      return {whole_()};
    case wholes: {
      list all;
      for (auto n = random_() % 5; n > 0; --n)
        all.push_back({whole_()});
      return {all};
    }
    case real:
      return {draw::real()};
    case number:
      return random_() % 2 == 0 ? exported_argument{draw::real()} : exported_argument{whole_()};
    case flag:
      return {random_() % 2 == 0};
    case text:
      return {one_of<std::string>({"floor", "trunc", "none", "tanh", "constant", "reflect", "replicate", "circular",
                                   "valid", "same", "ij,jk->ik", "ii->i", "...", "i->", ""})};
    case element_type:
      return {one_of<std::string>({"float32", "float64", "int64", "int32", "uint8", "bool"})};
    case memory_format:
      return {std::string("contiguous_format")};
    default:
      return {std::string("cpu")};
    }
  }

  std::int64_t whole_() { return draw::whole(); }

  exported_argument tensor_of(const operator_argument& x, const surroundings& around) {
    return !x.aliased && random_() % 8 == 0 ? exported_argument{whole_()} : draw::tensor(around);
  }

  const operator_schema& schema_;
  std::mt19937_64 random_;
};

std::string to_string(const exported_argument& x) {
  struct {
    std::string operator()(std::monostate) const { return "none"; }
    std::string operator()(bool y) const { return y ? "true" : "false"; }
    std::string operator()(std::int64_t y) const { return std::to_string(y); }
    std::string operator()(double y) const { return (std::ostringstream() << y).str(); }
    std::string operator()(const std::string& y) const { return '"' + y + '"'; }
    std::string operator()(const value_reference& y) const {
      return std::string(1, "xyspbcn"[static_cast<int>(y.from)]) + std::to_string(y.index);
    }
    std::string operator()(const list& y) const {
      std::string all = "[";
      for (const auto& z : y)
        all += to_string(z) + " ";
      return all + "]";
    }
  } const text;
  return std::visit(text, x.value);
}

/// Calls f(from), f(from + 1) … f(to − 1) in a child. Returns the one that ended it, and by which signal; or `to`.
template <class Function>
std::pair<std::uint64_t, int> run_apart(std::uint64_t from, std::uint64_t to, Function f) {
  using counter = std::atomic<std::uint64_t>;
  auto* at = new (mmap(nullptr, sizeof(counter), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) counter;
  *at = from;
  const auto child = fork();
  if (child == 0) {
    const rlimit memory{rlim_t{4} << 30, rlim_t{4} << 30}, no_core{0, 0};
    setrlimit(RLIMIT_AS, &memory); // what is too large is refused before it takes long
    setrlimit(RLIMIT_CORE, &no_core);
    for (; *at < to; ++*at) {
      alarm(5);
      try {
        f(at->load());
      } catch (const std::exception&) {
      }
    }
    _exit(0);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR)
    continue;
  const std::pair result(WIFSIGNALED(status) ? at->load() : to, WIFSIGNALED(status) ? WTERMSIG(status) : 0);
  munmap(at, sizeof(counter));
  return result;
}

std::string to_string(const exported_graph& x) {
  const auto& node = x.nodes.front();
  std::string result = node.schema->name + "(";
  for (const auto& y : node.arguments)
    result += to_string(y) + ", ";
  return result + ")";
}

// given: arithmetic on sizes whose result is no number / expected: said, with the node
TEST(hostile_graphs, sizes_that_overflow_are_told) {
  struct row {
    own_operator what;
    std::int64_t first, second;
    const char* why;
  };
  const surroundings around;
  for (const auto& [what, first, second, why] :
       {row{own_operator::add, most, 1, "int.add at m.py:1: its result is no whole number"},
        {own_operator::subtract, least, 1, "int.sub at m.py:1: its result"},
        {own_operator::multiply, most, 2, "int.mul at m.py:1: its result"},
        {own_operator::divide, least, -1, "int.floordiv at m.py:1: its result"},
        {own_operator::divide, 1, 0, "int.floordiv at m.py:1: divides by 0"}}) {
    exported_graph graph;
    graph.nodes.push_back(node_of(nullptr, what, {{first}, {second}}));
    graph.output = {origin::parameter, 0};
    ASSERT_EQ(problem_of(graph, around.frame()), "");
    EXPECT_THAT(thrown_by<exported_model_error>([&] { around.run(graph); }),
                testing::HasSubstr(std::string("node 0, ") + why));
  }
}

/// What takes long is no crash: the process that a cancelled job leaves behind ends by itself (runtime/node).
void expect_no_end(const exported_graph& graph, int signal) {
  if (signal != 0 && signal != SIGALRM)
    ADD_FAILURE() << to_string(graph) << " ends the process by SIG" << sigabbrev_np(signal);
}

// given: what did end processes, and what is like it / expected: no more
TEST(hostile_graphs, known_ones_end_no_process) {
  using enum origin;
  const exported_argument none, whole{std::string("int64")}, yes{true}, no{false};
  const auto heads = [&](std::uint32_t q, std::uint32_t k, double p) {
    return list{value(parameter, q), value(parameter, k), value(parameter, k), none, {p}, no, none, yes};
  };
  const auto extreme = value(constant, 0), least_one = value(constant, 3), minus = value(constant, 2),
             least_short = value(constant, 4), minus_short = value(constant, 5);
  std::vector<std::pair<const char*, list>> all{
      {"arange.start_step", {{std::int64_t{0}}, {std::int64_t{1}}, {1e-300}, whole, none, none, none}},
      {"arange.start_step", {{0.0}, {1.0}, {-0.1}, whole, none, none, none}},
      {"arange.start_step", {{least}, {most}, {std::int64_t{1}}, none, none, none, none}},
      {"arange.start", {{least}, {most}, none, none, none, none}},
      {"arange", {{most}, none, none, none, none}},
      {"scaled_dot_product_attention", heads(7, 6, 0)},
      {"scaled_dot_product_attention", heads(6, 6, 0)},
      {"scaled_dot_product_attention", heads(7, 6, 0.5)},
      {"scaled_dot_product_attention", heads(5, 6, 0.5)}};
  for (const auto& [first, second] : {std::pair(extreme, minus), {least_one, minus}, {least_short, minus_short}}) {
    all.emplace_back("floor_divide", list{first, second});
    all.emplace_back("floor_divide.Scalar", list{first, {std::int64_t{-1}}});
    all.emplace_back("remainder.Scalar", list{first, {std::int64_t{-1}}});
    for (const auto* mode : {"floor", "trunc"})
      all.emplace_back("div.Tensor_mode", list{first, second, {std::string(mode)}});
  }
  const surroundings around;
  const auto graph = [&](std::uint64_t i) {
    exported_graph result;
    result.nodes.push_back(node_of(find_operator(all[i].first), own_operator::none, all[i].second));
    result.output = {node, 0};
    EXPECT_EQ(problem_of(result, around.frame()), "") << all[i].first;
    return result;
  };
  for (std::uint64_t from = 0; from < all.size();) {
    const auto [at, signal] = run_apart(from, all.size(), [&](std::uint64_t i) { around.run(graph(i)); });
    if (at < all.size())
      expect_no_end(graph(at), signal);
    from = at + 1;
  }
}

// given: each operator of the list, with arguments drawn from what is large, small, empty, and no number / expected: an
// answer, or an error
TEST(hostile_graphs, drawn_ones_end_no_process) {
  const auto* asked = std::getenv("PARCAE_HOSTILE_CASES");
  const std::uint64_t cases = asked ? std::stoull(asked) : 8;
  const surroundings around;
  for (const auto& x : operator_list())
    for (std::uint64_t from = 0; from < cases;) {
      const auto [at, signal] = run_apart(from, cases, [&](std::uint64_t i) {
        if (const auto graph = draw(x, i).graph(around); problem_of(graph, around.frame()).empty())
          around.run(graph);
      });
      expect_no_end(draw(x, at).graph(around), signal);
      from = at + 1;
    }
}

} // namespace
} // namespace parcae
