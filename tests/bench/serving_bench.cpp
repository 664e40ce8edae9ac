// What it takes to compute the tokens of requests within one process: 8 requests in passes, the same one by one, and
// both by transformers' generate, one by one and as a static batch. Processor time of one thread, so who else uses the
// machine matters little; each measurement in a process of its own, by turns. Without PyTorch's Python side only ours
// are shown. Arguments: [rounds = 3], of the large model a
// third of them.

#include "gpu/device/attention.hpp"
#include "gpu/device/kernels.hpp"
#include "gpu/executor/memory_settings.hpp"
#include "gpu/serving/row_proof.hpp"
#include "gpu/serving/sampler.hpp"
#include "gpu/training/exact_settings.hpp"
#include "protocols/schedule/pass_schedule.hpp"
#include "runtime/child/process.hpp"
#include "runtime/gateway/endpoint.hpp"
#include "tests/bench/figures.hpp"
#include "tests/bench/measure.hpp"
#include "tests/bench/product_rate.hpp"
#include "tests/gpu/gateway/service_rig.hpp"
#include "tests/support/completion_client.hpp"
#include "tests/support/served_pipeline.hpp"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <iostream>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

namespace parcae {
namespace {

constexpr std::array<std::uint32_t, 8> prompt_lengths{12, 96, 40, 75, 31, 60, 104, 16}; // 434 tokens

struct served_case {
  const char* name;
  model_specification model;
  std::uint32_t new_tokens;                             ///< of each request
  double over_one_by_one, over_batch, alone_over_alone; ///< bounds; 0: none
};

const std::vector<served_case> cases{
    {"10 M",
     {.kind = "gpt", .layers = 6, .width = 368, .heads = 8, .sequence = 256, .vocabulary = 256},
     48,
     2.5,
     1.2,
     0.75},
    {"124 M",
     {.kind = "gpt", .layers = 12, .width = 768, .heads = 12, .sequence = 1024, .vocabulary = 50257},
     32,
     2,
     1,
     0},
};

/// The gateway's part and the stages', in one thread.
class engine {
public:
  explicit engine(const served_case& x) :
      new_tokens_(x.new_tokens), proof_(prove_rows(x.model)), pipeline_(x.model, proof_, 1, 1 << 28, 1) {
    std::mt19937_64 draw(1);
    for (const auto length : prompt_lengths)
      for (prompts_.emplace_back(); prompts_.back().size() < length;)
        prompts_.back().push_back(static_cast<std::uint32_t>(draw() % x.model.vocabulary));
  }

  /// Requests [first, last) together, from the first token to the last.
  void serve(std::size_t first, std::size_t last) {
    pass_schedule schedule({.rows = proof_.largest()});
    std::map<std::uint64_t, std::vector<std::uint32_t>> tokens;
    for (auto i = first; i < last; ++i) {
      tokens[i] = prompts_[i];
      const auto length = static_cast<std::uint32_t>(prompts_[i].size());
      if (!pipeline_.reserve(i, length + new_tokens_))
        throw std::runtime_error("there is no room for a request");
      schedule.enter({.id = i, .known = length, .sent = 0, .most = length + new_tokens_});
    }
    while (const auto* pass = schedule.next()) {
      run(*pass, tokens);
      schedule.done();
    }
    for (auto i = first; i < last; ++i)
      pipeline_.release(i);
  }

private:
  void run(const std::vector<pass_rows>& pass, std::map<std::uint64_t, std::vector<std::uint32_t>>& tokens) {
    std::vector<request_row> rows;
    std::vector<std::uint32_t> wanted;
    std::vector<std::uint64_t> whose;
    for (const auto& x : pass) {
      for (auto p = x.first; p < x.first + x.count; ++p)
        rows.push_back({x.request, p, tokens[x.request][p]});
      if (x.yields) {
        wanted.push_back(static_cast<std::uint32_t>(rows.size() - 1));
        whose.push_back(x.request);
      }
    }
    const auto logits = pipeline_.run(rows, proof_.size_for(rows.size()), wanted);
    const auto vocabulary = wanted.empty() ? 0 : static_cast<std::size_t>(logits.size(1));
    for (std::size_t i = 0; i < whose.size(); ++i) {
      auto& of = tokens[whose[i]];
      of.push_back(token_of({logits.data_ptr<float>() + i * vocabulary, vocabulary}, {.temperature = 0}, of.size()));
    }
  }

  const std::uint32_t new_tokens_;
  const row_proof proof_;
  served_pipeline pipeline_;
  std::vector<std::vector<std::uint32_t>> prompts_;
};

/// Processor seconds of all requests.
struct cost {
  double one_by_one = 0;
  double together = 0;
};

cost own_cost(const served_case& x) {
  keep_memory_for_tensors();
  make_libtorch_exact();
  at::set_num_threads(1);
  engine e(x);
  e.serve(0, 1); // warms up
  const auto seconds = [](const auto& f) {
    const auto began = cpu_ms();
    f();
    return (cpu_ms() - began) / 1e3;
  };
  return {seconds([&] {
            for (std::size_t i = 0; i < prompt_lengths.size(); ++i)
              e.serve(i, i + 1);
          }),
          seconds([&] { e.serve(0, prompt_lengths.size()); })};
}

cost measured(const std::vector<std::string>& command, const std::string& what) {
  const scratch_folder logs("serving-bench");
  const auto out = logs.path() / "out", err = logs.path() / "err";
  child_process child({command, out, err});
  cost x;
  if (child.wait(std::chrono::minutes(20)) != 0 || !(std::ifstream(out) >> x.one_by_one >> x.together)) {
    std::cerr << std::ifstream(err).rdbuf();
    throw std::runtime_error("the measurement " + what + " failed");
  }
  std::cerr << what << ": " << x.one_by_one << " s one by one, " << x.together << " s together\n";
  return x;
}

cost cost_of_generate(const served_case& x) {
  std::vector<std::string> command{PARCAE_PYTHON_TESTS "/with_torch", PARCAE_PYTHON_TORCH,
                                   PARCAE_PYTHON_TESTS "/generate_tokens.py"};
  for (const auto n :
       {x.model.width, x.model.layers, x.model.heads, x.model.vocabulary, x.model.sequence, x.new_tokens})
    command.push_back(std::to_string(n));
  for (const auto length : prompt_lengths)
    command.push_back(std::to_string(length));
  return measured(command, std::string(x.name) + ", generate");
}

/// Attention of 16 rows, of as many requests or of one, at a position: what its products and sums alone would take,
/// over what it takes.
double share_of_products(std::size_t position, bool one_request) {
  const attention_shape shape{12, 12, 64};
  constexpr std::size_t rows = 16;
  const auto blocks = position / block_positions + 1, all = one_request ? blocks : rows * blocks;
  std::vector<float> pool(all * shape.block_values()), queries(rows * shape.heads * shape.size), to(queries.size());
  draw_normal(pool.data(), pool.size(), 1, 1);
  draw_normal(queries.data(), queries.size(), 2, 1);
  std::vector<std::int32_t> of_pool(all), table(rows * blocks);
  std::iota(of_pool.begin(), of_pool.end(), 0);
  std::ranges::shuffle(of_pool, std::mt19937_64(1));
  for (std::size_t i = 0; i < table.size(); ++i)
    table[i] = of_pool[i % all];
  const std::vector<std::int64_t> positions(rows, static_cast<std::int64_t>(position));
  const cached_rows where{rows, pool.data(), shape.block_values(), table.data(), blocks, positions.data()};
  auto best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 9; ++i) {
    const auto began = thread_ms();
    attend_rows(shape, where, 0.125f, queries.data(), shape.heads * shape.size, to.data());
    best = std::min(best, thread_ms() - began);
  }
  return static_cast<double>(2 * rows * shape.heads * shape.size * (position + 1)) * product_ms() / best;
}

/// The same requests by one worker, a gateway and HTTP: streams that are read as they come.
class served_by_http {
public:
  explicit served_by_http(const served_case& x) : new_tokens_(static_cast<int>(x.new_tokens)), rig_(job_of(x)) {
    rig_.add_worker();
    rig_.begin(1, 1);
    endpoint_.ask(rig_.front());
    serve(0, 1); // warms up
  }
  ~served_by_http() { endpoint_.let_go(rig_.front()); }

  void serve(std::size_t first, std::size_t last) {
    std::vector<std::future<completion>> all;
    for (auto i = first; i < last; ++i)
      all.push_back(std::async(std::launch::async, [this, i] {
        return ask_stream(endpoint_.port(), {"served", prompt_lengths[i], new_tokens_, 1, 0});
      }));
    for (auto& x : all)
      if (const auto answer = x.get(); answer.tokens.size() != static_cast<std::size_t>(new_tokens_))
        throw std::runtime_error("an answer is not whole: " + answer.problem);
  }

private:
  static job_specification job_of(const served_case& x) {
    auto job = rig::served_job();
    job.name = "served";
    job.model = x.model;
    job.serve = {};
    return job;
  }

  const int new_tokens_;
  rig::service_rig rig_;
  endpoint endpoint_{{boost::asio::ip::address_v4::loopback(), 0}, {}, {}};
};

/// Wall time through gateway and HTTP over that of the same passes within one thread, by turns.
void compare_with_http(const served_case& x, int rounds, figures& out) {
  keep_memory_for_tensors();
  make_libtorch_exact();
  at::set_num_threads(1);
  engine here(x);
  here.serve(0, 1);
  served_by_http there(x);
  const auto wall = [](const auto& f) {
    const auto began = std::chrono::steady_clock::now();
    f();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  };
  std::vector<double> together, alone;
  for (int i = 0; i < 3 * rounds; ++i) {
    const auto passes = wall([&] { here.serve(0, prompt_lengths.size()); });
    together.push_back(wall([&] { there.serve(0, prompt_lengths.size()); }) / passes);
    const auto one = wall([&] { here.serve(0, 1); });
    alone.push_back(wall([&] { there.serve(0, 1); }) / one);
  }
  const std::string name = std::string(x.name) + ": time through gateway and HTTP over that of the same passes, ";
  out.at_most(name + "8 requests", median(together), 1.1);
  out.at_most(name + "one alone", median(alone), 1.1);
}

constexpr const char* measure_option = "--measure";

void compare(std::size_t index, int rounds, bool has_python, figures& out) {
  const auto& x = cases[index];
  std::vector<double> ours, over_one_by_one, over_batch, alone, tokens;
  for (int i = 0; i < rounds; ++i) {
    const auto here = measured({sibling_program("serving_bench"), measure_option, std::to_string(index)}, x.name);
    ours.push_back(here.one_by_one / here.together);
    tokens.push_back(static_cast<double>(prompt_lengths.size() * x.new_tokens) / here.together);
    if (!has_python)
      continue;
    const auto there = cost_of_generate(x);
    over_one_by_one.push_back(there.one_by_one / here.together);
    over_batch.push_back(there.together / here.together);
    alone.push_back(there.one_by_one / here.one_by_one);
  }
  const std::string name = std::string(x.name) + ": ";
  out.only_shown(name + "tokens a second of 8 requests", median(tokens));
  out.only_shown(name + "8 requests over one by one", median(ours));
  if (!has_python)
    return;
  out.at_least(name + "8 requests over generate one by one", median(over_one_by_one), x.over_one_by_one);
  out.at_least(name + "8 requests over generate's batch of 8", median(over_batch), x.over_batch);
  if (x.alone_over_alone > 0)
    out.at_least(name + "one request alone over generate", median(alone), x.alone_over_alone);
  else
    out.only_shown(name + "one request alone over generate", median(alone));
}

} // namespace
} // namespace parcae

int main(int argc, char** argv) {
  using namespace parcae;
  if (argc == 3 && std::string(argv[1]) == measure_option) {
    const auto x = own_cost(cases.at(static_cast<std::size_t>(std::atoi(argv[2]))));
    std::cout << x.one_by_one << ' ' << x.together << std::endl;
    return EXIT_SUCCESS;
  }
  const auto rounds = argc > 1 ? std::atoi(argv[1]) : 3;
  const bool has_python = std::filesystem::exists(std::filesystem::path(PARCAE_PYTHON_TORCH) / "complete");
  if (!has_python)
    std::cerr << "not compared with transformers: it is not at " PARCAE_PYTHON_TORCH "; run deploy/setup\n";
  figures out;
  out.at_least("attention of a prompt at position 500: its products and sums alone over it",
               share_of_products(500, true), 0.3);
  out.only_shown("the same of 16 requests, which is memory's rate", share_of_products(500, false));
  compare_with_http(cases[0], rounds, out);
  compare(0, rounds, has_python, out);
  compare(1, (rounds + 2) / 3, has_python, out); // takes minutes
  return out.status();
}
