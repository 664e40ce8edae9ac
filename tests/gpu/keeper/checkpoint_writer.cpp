// A keeper that does nothing but write checkpoints: for tests that kill it.
//   checkpoint_writer PLACE KEEPER STEPS...    each keeps the one before; layers of its large_job()
// Prints a line for each: its steps, or the problem.

#include "gpu/keeper/checkpoint_store.hpp"
#include "tests/gpu/keeper/checkpoint_folder.hpp"
#include "tests/support/object_server.hpp"

#include <cstdio>
#include <future>

int main(int count, char** arguments) {
  using namespace parcae;
  if (count < 4)
    return 2;
  auto specification = large_job();
  specification.checkpoint.to = arguments[1];
  checkpoint_store store("/nonexistent", arguments[2], {}, quick_pace());
  std::vector<std::uint64_t> kept;
  for (int i = 3; i < count; ++i) {
    const version at{std::stoull(arguments[i]), {1}};
    std::promise<checkpointed> answer;
    store.write({{1}, at, "text-1/" + to_string(at), specification, "digest", kept},
                {shard_of(0, at, specification), shard_of(1, at, specification), shard_of(2, at, specification)}, {},
                [&](checkpointed x) { answer.set_value(std::move(x)); });
    const auto x = answer.get_future().get();
    std::printf("%s\n", x.problem.empty() ? arguments[i] : x.problem.c_str());
    std::fflush(stdout);
    kept = {at.steps};
  }
}
