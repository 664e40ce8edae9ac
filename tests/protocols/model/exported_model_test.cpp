// What model.json may say: a small one that is right, and many that are not.

#include "gpu/checkpoint/exported_weights.hpp"
#include "protocols/model/exported_model.hpp"
#include "tests/support/files.hpp"
#include "tests/support/thrown_by.hpp"

#include <boost/json.hpp>

#include <gmock/gmock.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <vector>

namespace parcae {
namespace {

namespace json = boost::json;

/// An embedding and a linear layer with dropout and BatchNorm, one node each or a few.
constexpr const char* right = R"({
"format": "parcae.exported_model", "version": 1, "torch": "2.11.0",
"input": {"kind": "tokens", "sequence": 4, "vocabulary": 8}, "loss": "cross_entropy", "mask_token": null, "ties": {},
"layers": [
{"name": "embedding", "graph": 0, "parameters": ["wte.weight"], "buffers": [], "constants": [], "output": [4, 6],
 "forward_flop": 0.0, "activation_values": 24.0},
{"name": "head", "graph": 1, "parameters": ["norm.weight", "norm.bias", "head.weight"], "buffers": ["norm.running_mean", "norm.running_var"],
 "constants": ["scale"], "output": [4, 8], "forward_flop": 384.0, "activation_values": 56.0}],
"tensors": {
"wte.weight": ["float32", [8, 6], "0000000000000000000000000000000000000000000000000000000000000000"],
"norm.weight": ["float32", [4], "0000000000000000000000000000000000000000000000000000000000000000"],
"norm.bias": ["float32", [4], "0000000000000000000000000000000000000000000000000000000000000000"],
"norm.running_mean": ["float32", [4], "0000000000000000000000000000000000000000000000000000000000000000"],
"norm.running_var": ["float32", [4], "0000000000000000000000000000000000000000000000000000000000000000"],
"scale": ["float32", [1], "0000000000000000000000000000000000000000000000000000000000000000"],
"head.weight": ["float32", [8, 6], "0000000000000000000000000000000000000000000000000000000000000000"]},
"graphs": [
{"train": {"nodes": [{"op": "embedding", "args": ["%p0", "%x", -1, false, false], "at": "m.py:1"},
                     {"op": "relu_", "args": ["%0"], "at": "m.py:2"}], "output": "%1"},
 "eval": {"nodes": [{"op": "embedding", "args": ["%p0", "%x", -1, false, false], "at": "m.py:1"}], "output": "%0"}},
{"train": {"nodes": [
  {"op": "batch_norm", "args": ["%x", "%p0", "%p1", "%b0", "%b1", true, "0.1", "1e-05", false], "at": "m.py:3"},
  {"op": "dropout", "args": ["%0", "0.5", true], "at": "m.py:4"},
  {"op": "mul.Tensor", "args": ["%1", "%c0"], "at": "m.py:5"},
  {"op": "linear", "args": ["%2", "%p2", null], "at": "m.py:6"}], "output": "%3"},
 "eval": {"nodes": [
  {"op": "batch_norm", "args": ["%x", "%p0", "%p1", "%b0", "%b1", false, "0.1", "1e-05", false], "at": "m.py:3"},
  {"op": "mul.Tensor", "args": ["%0", "%c0"], "at": "m.py:5"},
  {"op": "linear", "args": ["%1", "%p2", null], "at": "m.py:6"}], "output": "%2"}}]
})";

model_specification of(std::string text) {
  model_specification x{.kind = "exported"};
  x.path = "/models/m";
  x.exported = std::move(text);
  return x;
}

std::string changed(const std::string& from, const std::string& to) {
  std::string text = right;
  const auto place = text.find(from);
  if (place == text.npos)
    throw std::logic_error("the test changes what is not there: " + from);
  return text.replace(place, from.size(), to);
}

std::string problem_with(const std::string& text) {
  return thrown_by<exported_model_error>([&] { exported_model_of(of(text)); });
}

TEST(exported_model, says_what_the_model_is) {
  const auto model = exported_model_of(of(right));
  const auto& d = model->description;
  ASSERT_EQ(d.layers.size(), 2u);
  EXPECT_EQ(d.layers[1].parameters(), 4u + 4 + 48);
  EXPECT_EQ(d.layers[1].buffer_values(), 8u);
  EXPECT_EQ(d.layers[1].tensors[2].name, "head.weight");
  EXPECT_EQ(d.input, std::vector<std::int64_t>{4});
  EXPECT_EQ(d.targets, 4u);
  EXPECT_EQ(model->sizes.vocabulary, 8u);
  EXPECT_EQ(model->initial.size(), 6u);
  EXPECT_EQ(model->constants.size(), 1u);
  EXPECT_EQ(exported_model_of(of(right)), model) << "is read once";
}

TEST(exported_model, ties_are_of_an_earlier_layer) {
  auto text = changed("\"ties\": {}", R"("ties": {"head.weight": "wte.weight"})");
  const auto model = exported_model_of(of(text));
  ASSERT_TRUE(model->description.tied);
  EXPECT_EQ(model->description.tied->second_layer, 1u);
  EXPECT_EQ(model->description.tied->second_tensor, 2u);
  EXPECT_EQ(model->description.parameters(), 48u + 8);
}

/// The same, to be served: its head reads positions, and keeps something.
std::string servable() {
  std::string text = right;
  const auto put = [&](const std::string& before, const std::string& what) {
    const auto place = text.find(before);
    ASSERT_NE(place, text.npos) << before;
    text.insert(place, what);
  };
  put(R"("name": "embedding",)", R"("cached_values": 0, )");
  put(R"("name": "head",)", R"("cached_values": 48, )");
  put(R"(},
{"train")",
      R"(, "serve": {"nodes": [{"op": "embedding", "args": ["%p0", "%x", -1, false, false], "at": "m.py:1"}], "output": "%0"})");
  put(R"(}]
})",
      R"(, "serve": {"nodes": [{"op": "mul.Tensor", "args": ["%x", "%t"], "at": "m.py:7"},
  {"op": "scaled_dot_product_attention", "args": ["%0", "%0", "%0", null, "0.0", false, null, false], "at": "m.py:8"}],
  "output": "%1"})");
  return text;
}

TEST(exported_model, says_whether_it_can_be_served) {
  EXPECT_FALSE(exported_model_of(of(right))->can_be_served());
  const auto model = exported_model_of(of(servable()));
  ASSERT_TRUE(model->can_be_served());
  EXPECT_EQ(model->layers[0].cached_values, 0u);
  EXPECT_EQ(model->layers[1].cached_values, 48u);
}

// given: a job that serves, and models with and without graphs for that / expected: refused without; what layers keep
// of a position is what the folder says
TEST(exported_model, a_job_serves_what_can_be_served) {
  job_specification job;
  job.kind = "serve";
  job.optimizer.kind = "none";
  const auto problem_of_serving = [&](const std::string& text) {
    job.model = of(text);
    const auto sizes = exported_model_of(job.model)->sizes;
    job.model.sequence = sizes.sequence;
    job.model.vocabulary = sizes.vocabulary;
    return model_problem_of(job);
  };
  EXPECT_EQ(problem_of_serving(servable()), "");
  EXPECT_EQ(cached_values(job.model), (std::vector<std::uint64_t>{0, 48}));
  EXPECT_EQ(problem_of_serving(right),
            "model.path cannot be served: /models/m has no graphs for that; export it with serve=True");
}

// given: one thing changed of a model that can be served / expected: refused, in one line that says where
TEST(exported_model, refusals_of_what_is_served) {
  const auto with = [](const std::string& from, const std::string& to) {
    auto text = servable();
    return problem_with(text.replace(text.find(from), from.size(), to));
  };
  EXPECT_THAT(with("\"cached_values\": 48, ", ""), testing::HasSubstr("has no \"cached_values\""));
  EXPECT_THAT(with("\"cached_values\": 48", "\"cached_values\": 100000000"), testing::HasSubstr("must be from 0 to"));
  EXPECT_THAT(with(R"(, "serve": {"nodes": [{"op": "embedding")", R"(, "other": {"nodes": [{"op": "embedding")"),
              testing::HasSubstr("some layers can be served and others not"));
  EXPECT_THAT(with("\"%0\", \"%0\", \"%0\", null", "\"%0\", \"%0\", \"%0\", \"%0\""),
              testing::HasSubstr("of rows: node 1, scaled_dot_product_attention at m.py:8: has a mask"));
  EXPECT_THAT(with(R"("mul.Tensor", "args": ["%x", "%t"])",
                   R"("scaled_dot_product_attention", "args": ["%x", "%x", "%x", null, "0.0", false, null, false])"),
              testing::HasSubstr("node 1, scaled_dot_product_attention at m.py:8: is a second attention"));
  EXPECT_THAT(problem_with(changed(R"("mul.Tensor", "args": ["%1", "%c0"])", R"("mul.Tensor", "args": ["%1", "%t"])")),
              testing::HasSubstr("refers to a value that is not there")); // positions are of rows alone
}

struct refusal {
  const char* from;
  const char* to;
  const char* why;
};

// given: one thing changed / expected: refused, in one line that says where, with the source line of a node
TEST(exported_model, refusals) {
  const refusal cases[] = {
      {"\"version\": 1", "\"version\": 2", "version 2 of the format"},
      {"parcae.exported_model", "pickle", "not what parcae_model writes"},
      {"2.11.0", "2.12.0", "torch 2.12.0"},
      {"\"op\": \"linear\"", "\"op\": \"aten.randn\"", "not on the list"},
      {"\"op\": \"linear\"", "\"op\": \"bernoulli\"", "node 3, bernoulli at m.py:6: the operator is not on the list"},
      {"\"op\": \"linear\"", "\"op\": \"scatter_add\"", "at m.py:6: the operator is not on the list"},
      {"\"op\": \"linear\"", "\"op\": \"__import__('os').system\"", "not on the list"},
      {"\"op\": \"relu_\", \"args\": [\"%0\"]", "\"op\": \"relu_\", \"args\": [\"%p0\"]",
       "relu_ at m.py:2: writes in place"},
      {"\"op\": \"relu_\", \"args\": [\"%0\"]", "\"op\": \"relu_\", \"args\": [\"%x\"]", "writes in place"},
      {"[\"%2\", \"%p2\", null]", "[\"%7\", \"%p2\", null]", "linear at m.py:6: refers to a value that is not there"},
      {"[\"%2\", \"%p2\", null]", "[\"%2\", \"%p9\", null]", "refers to a value that is not there"},
      {"[\"%2\", \"%p2\", null]", "[\"%2\", \"%p2\"]", "has 2 arguments, the operator 3"},
      {"[\"%2\", \"%p2\", null]", "[\"%2\", 3, true]", "its argument \"bias\" is not what the operator takes"},
      {"[\"%2\", \"%p2\", null]", "[\"%2\", \"%b0\", null]", "its argument \"weight\""},
      {"[\"%2\", \"%p2\", null]", "[\"%2\", \"%y\", null]", "refers to a value"},
      {"[\"%2\", \"%p2\", null]", "[\"%q\", \"%p2\", null]", "refers to nothing"},
      {"\"output\": \"%3\"", "\"output\": [\"%3\", \"%2\"]", "exactly one lies between layers"},
      {"\"0.5\", true", "\"1.0\", true", "dropout at m.py:4: the probability"},
      {"\"0.5\", true", "\"half\", true", "is no number"},
      {"[\"%0\", \"%c0\"]", "[\"%0\", \"%c1\"]", "mul.Tensor at m.py:5: refers to a value"},
      {"\"0.1\", \"1e-05\"", "\"0.2\", \"1e-05\"", "batch_norm at m.py:3: its momentum"},
      {"\"%b0\", \"%b1\", true", "\"%b0\", \"%b0\", true", "shares its running statistics"},
      {"\"%b0\", \"%b1\", true", "\"%b0\", \"%b1\", false", "unfreeze it"},
      {"\"%b0\", \"%b1\", true", "null, null, true", "belong to no batch norm"},
      {"[8, 6], \"0", "[8, -6], \"0", "a shape has an extent below 1"},
      {"[8, 6], \"0", "[1099511627776, 1099511627776], \"0", "too large to be true"},
      {"\"output\": [4, 8]", "\"output\": [4, 7]", "cross-entropy"},
      {"\"graph\": 1", "\"graph\": 2", "there is no graph 2"},
      {"\"parameters\": [\"wte.weight\"]", "\"parameters\": [\"head.weight\"]", "second parameter head.weight"},
      {"\"parameters\": [\"wte.weight\"]", "\"parameters\": [\"../../etc/passwd\"]", "not in \"tensors\""},
      {"\"parameters\": [\"wte.weight\"]", "\"parameters\": [\"a\\nb\"]", "printable"},
      {"\"parameters\": [\"wte.weight\"]", "\"parameters\": []", "has no parameters"},
      {"\"vocabulary\": 8", "\"vocabulary\": 0", "must be from 1"},
      {"\"loss\": \"cross_entropy\"", "\"loss\": \"hinge\"", "the loss \"hinge\" is not known"},
      {"\"mask_token\": null", "\"mask_token\": 8", "no token"},
      {"\"ties\": {}", "\"ties\": {\"wte.weight\": \"head.weight\"}", "which no earlier layer has"},
      {"\"forward_flop\": 384.0", "\"forward_flop\": -1", "no quantity"},
      {"\"wte.weight\": [\"float32\"", "\"wte.weight\": [\"bfloat16\"", "parameters are float32"},
      {"\"layers\": [", "\"layers\": [3, ", "has no \"name\""},
      {"\"graphs\": [", "\"graphs\": [[[", "JSON"},
  };
  for (const auto& x : cases) {
    const auto problem = problem_with(changed(x.from, x.to));

    EXPECT_NE(problem.find(x.why), problem.npos) << x.from << " -> " << x.to << "\n" << problem;
    EXPECT_EQ(problem.find('\n'), problem.npos) << problem;
    EXPECT_TRUE(problem.starts_with("/models/m/model.json")) << problem;
  }
}

// given: the text cut at every byte, or with one byte changed / expected: read or refused, nothing else
TEST(exported_model, no_text_does_harm) {
  const std::string text = right;
  for (std::size_t i = 0; i < text.size(); i += 7)
    EXPECT_NE(problem_with(text.substr(0, i)), "") << i;
  for (std::size_t i = 0; i < text.size(); i += 3) {
    auto other = text;
    other[i] = static_cast<char>(other[i] ^ 5);
    problem_with(other);
  }
}

// given: a folder without weights, or with fewer or other tensors / expected: named at submit
TEST(exported_model, weights_must_be_there) {
  const own_folder folder;
  std::ofstream(folder / "model.json") << right;
  model_specification x{.kind = "exported"};
  x.path = folder.string();
  take_exported_model(x);
  EXPECT_EQ(x.sequence, 4u);
  EXPECT_EQ(x.vocabulary, 8u);
  const auto problem = [&] { return thrown_by<exported_model_error>([&] { check_stored_weights(x); }); };
  EXPECT_NE(problem().find("weights.safetensors"), std::string::npos) << problem();
  const auto write = [&](std::vector<safetensors_entry> entries) {
    std::uint64_t values = 0;
    for (const auto& e : entries)
      values += tensor_description{e.name, e.shape, {}, 0}.values();
    std::ofstream(folder / "weights.safetensors")
        << safetensors_header(entries, {}) << std::string(values * sizeof(float), '\0');
  };
  const std::vector<safetensors_entry> all{{"wte.weight", {8, 6}},     {"norm.weight", {4}},      {"norm.bias", {4}},
                                           {"norm.running_mean", {4}}, {"norm.running_var", {4}}, {"scale", {1}},
                                           {"head.weight", {8, 6}}};
  write(all);
  EXPECT_EQ(problem(), "");
  auto fewer = all;
  fewer.pop_back();
  write(fewer);
  EXPECT_NE(problem().find("has no tensor head.weight"), std::string::npos) << problem();
  auto other = all;
  other.back().shape = {6, 8};
  write(other);
  EXPECT_NE(problem().find("has a tensor head.weight of another shape"), std::string::npos) << problem();
}

} // namespace
} // namespace parcae
