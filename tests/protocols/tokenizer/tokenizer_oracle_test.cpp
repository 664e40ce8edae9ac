// Tokens and texts are those of Hugging Face's tokenizers, which oracle.py asks: BPEs as GPT-2, Llama 3, Qwen 2 and
// SmolLM have them, trained there, on 10,000 texts in many scripts, a tenth of them damaged.

#include "protocols/base/enum_text.hpp"
#include "protocols/tokenizer/chat.hpp"
#include "protocols/tokenizer/tokenizer_file.hpp"
#include "protocols/tokenizer/utf8.hpp"
#include "tests/support/files.hpp"
#include "tests/support/names.hpp"

#include <boost/json.hpp>

#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <optional>

namespace parcae {
namespace {

namespace json = boost::json;

std::string from_hexadecimal(std::string_view x) {
  std::string result;
  for (; x.size() >= 2; x.remove_prefix(2))
    result += static_cast<char>(std::stoi(std::string(x.substr(0, 2)), nullptr, 16));
  return result;
}

std::vector<token_id> tokens_of(const json::value& x) {
  std::vector<token_id> result;
  for (const auto& id : x.as_array())
    result.push_back(id.to_number<token_id>());
  return result;
}

struct tokenizer_oracle_test : testing::TestWithParam<std::string> {
  /// What the oracle wrote, once for all tests.
  static void SetUpTestSuite() {
    folder.emplace();
    const auto command = std::string(PARCAE_PYTHON_TESTS "/with_torch " PARCAE_PYTHON_TORCH " " ORACLE " ") +
                         folder->string() + " >" + (*folder / "said").string() + " 2>&1";
    status = WEXITSTATUS(std::system(command.c_str())); // NOLINT: paths of our own
  }
  static void TearDownTestSuite() { folder.reset(); }

  void SetUp() override {
    const auto said = content(*folder / "said");
    if (status == 77)
      GTEST_SKIP() << said;
    ASSERT_EQ(status, 0) << said;
  }

  std::filesystem::path here() const { return *folder / GetParam(); }

  static inline std::optional<own_folder> folder;
  static inline int status = 0;
};

TEST_P(tokenizer_oracle_test, texts_have_the_same_tokens) {
  const auto ours = read_tokenizer(here() / "tokenizer.json");
  std::ifstream file(here() / "texts");
  int count = 0, wrong = 0;
  for (std::string line; std::getline(file, line) && wrong < 5; ++count) {
    const auto ids = line.find('['), text = line.find(']') + 2;
    const auto given = from_hexadecimal(line.substr(0, ids - 1));
    const auto wanted = tokens_of(json::parse(line.substr(ids, text - 1 - ids)));
    auto got = ours.opening();
    std::ranges::copy(ours.encode(given), std::back_inserter(got));
    EXPECT_EQ(got, wanted) << "text " << count << ": " << given;
    EXPECT_EQ(text_of(ours, got), from_hexadecimal(line.substr(text))) << "text " << count;
    wrong += got != wanted;
  }
  EXPECT_EQ(count, 10'000);
}

TEST_P(tokenizer_oracle_test, tokens_have_the_same_text) {
  const auto ours = read_tokenizer(here() / "tokenizer.json");
  std::ifstream file(here() / "tokens");
  int count = 0, damaged = 0;
  for (std::string line; std::getline(file, line); ++count) {
    const auto text = line.find(']') + 2;
    const auto wanted = from_hexadecimal(line.substr(text));
    EXPECT_EQ(text_of(ours, tokens_of(json::parse(line.substr(0, text - 1)))), wanted) << line;
    damaged += wanted.find("\uFFFD") != wanted.npos;
  }
  EXPECT_EQ(count, 2000);
  EXPECT_GT(damaged, 100);
}

TEST_P(tokenizer_oracle_test, chats_have_the_same_tokens) {
  const auto ours = read_tokenizer(here() / "tokenizer.json");
  const auto chats = json::parse(content(here() / "chats"));
  if (chats.as_array().empty())
    return; // no model of that kind has a form of chats
  const chat_writer writer(GetParam() == "llama3" ? chat_form::llama3 : chat_form::chatml, ours);
  for (const auto& chat : chats.as_array()) {
    std::vector<chat_message> messages;
    for (const auto& x : chat.at("messages").as_array())
      messages.push_back({parse_enum<chat_role>(std::string_view(x.at("role").as_string())).value(),
                          std::string(x.at("content").as_string())});
    EXPECT_EQ(writer.prompt_of(messages), tokens_of(chat.at("ids"))) << chat.at("messages");
  }
  EXPECT_EQ(chats.as_array().size(), 300u);
  EXPECT_EQ(ours.opening().size(), GetParam() == "llama3" ? 1u : 0u);
}

INSTANTIATE_TEST_SUITE_P(models, tokenizer_oracle_test, testing::Values("gpt2", "spaced", "smollm", "qwen2", "llama3"),
                         [](const auto& x) { return x.param; });

} // namespace
} // namespace parcae
