// What `parcae-node --describe` writes of a plug-in's model: a small one that is right, and many that are not.

#include "protocols/model/exported_model.hpp"
#include "tests/support/thrown_by.hpp"

#include <gtest/gtest.h>

#include <string>

namespace parcae {
namespace {

const std::string digest(64, 'a');

const std::string described = R"({"format":"parcae.plugin_model","version":1,"model":"m","arguments":{"width":"6"},
"input":{"kind":"tokens","sequence":4,"vocabulary":8},"loss":"cross_entropy","mask_token":null,
"layers":[
{"name":"embedding","parameters":[{"name":"wte","shape":[8,6],"initial":"normal","scale":"0.02"}],"buffers":[],
 "output":[4,6],"forward_flop":0,"activation_values":24},
{"name":"head","parameters":[{"name":"w","shape":[8,6],"initial":"uniform","scale":"0.4"},
 {"name":"b","shape":[8],"initial":"zeros","scale":"0"}],
 "buffers":[{"name":"mean","shape":[4],"initial":"zeros","scale":"0"},{"name":"var","shape":[5],"initial":"ones","scale":"0"}],
 "output":[4,8],"forward_flop":384,"activation_values":56}],
"plugin":")" + digest + "\"}";

model_specification taken(const std::string& text) {
  model_specification x{.kind = "plugin"};
  x.path = "/models/m.json";
  take_described_plugin(x, text);
  return x;
}

// given: a description / expected: layers, tensors with how they are drawn, sizes; the digest apart from the rest, so
// that another build of the same model has the same text
TEST(plugin_model, says_what_the_model_is) {
  const auto x = taken(described);
  EXPECT_EQ(x.plugin, digest);
  EXPECT_EQ(x.exported.find(digest), std::string::npos);
  EXPECT_EQ(x.vocabulary, 8u);
  EXPECT_EQ(x.sequence, 4u);
  const auto model = exported_model_of(x);
  EXPECT_EQ(model->plugin_model, "m");
  EXPECT_EQ(model->plugin_arguments.at("width"), "6");
  const auto& d = describe(x);
  ASSERT_EQ(d.layers.size(), 2u);
  EXPECT_EQ(d.layers[0].tensors[0].initial, initial_value::normal);
  EXPECT_EQ(d.layers[0].tensors[0].scale, 0.02);
  EXPECT_EQ(d.layers[1].buffers[1].initial, initial_value::ones);
  EXPECT_EQ(model->layers[1].buffer_offsets, (std::vector<std::int64_t>{0, 4}));
  EXPECT_EQ(d.layers[1].forward_flop, 384);
  EXPECT_EQ(d.parameters(), 48u + 48 + 8);
  auto other = described;
  other.replace(other.find(digest), 64, std::string(64, 'b'));
  EXPECT_EQ(taken(other).exported, x.exported);
  EXPECT_EQ(taken(other).plugin, std::string(64, 'b'));
}

// given: what is changed in it / expected: one line that says where
TEST(plugin_model, what_is_wrong_is_said) {
  const auto problem_with = [](const std::string& from, const std::string& to) {
    auto text = described;
    text.replace(text.find(from), from.size(), to);
    return thrown_by<exported_model_error>([&] { taken(text); });
  };
  const auto has = [](const std::string& what, const std::string& part) {
    EXPECT_NE(what.find(part), std::string::npos) << what;
    EXPECT_EQ(what.find('\n'), std::string::npos) << what;
  };
  has(problem_with(R"({"format")", R"(["format")"), "/models/m.json: is no JSON");
  has(problem_with("plugin_model", "exported_model"), "is not what `parcae-node --describe` writes");
  has(problem_with("\"version\":1", "\"version\":2"), "version 2 of the format");
  has(problem_with(digest, "abc"), "\"plugin\" is no SHA-256");
  has(problem_with("\"arguments\":{\"width\":\"6\"}", "\"arguments\":{\"width\":6}"), "argument width is no string");
  has(problem_with("\"name\":\"w\"", "\"name\":\"wte\""), "layer 1 (head): has a second tensor wte");
  has(problem_with("\"uniform\"", "\"stored\""), "how version 0 of w is drawn");
  has(problem_with("\"0.4\"", "\"-1\""), "how version 0 of w is drawn");
  has(problem_with("\"0.4\"", "0.4"), "\"scale\" is no string");
  has(problem_with("\"ones\"", "\"normal\""), "its buffer var must begin as zeros or ones");
  has(problem_with("[4,8]", "[4,7]"), "layer 1 (head): its output is not what cross-entropy wants");
  has(problem_with("\"shape\":[8,6]", "\"shape\":[8,0]"), "a shape has an extent below 1");
  has(problem_with("\"forward_flop\":384", "\"forward_flop\":-1"), "\"forward_flop\" is no quantity");
  has(problem_with(R"([{"name":"wte","shape":[8,6],"initial":"normal","scale":"0.02"}])", "[]"), "has no parameters");
}

} // namespace
} // namespace parcae
