// Two nodes on one GPU: here two locks, which are of an open file each, as two processes' would be.

#include "runtime/child/process.hpp"
#include "runtime/node/device_lock.hpp"
#include "tests/support/thrown_by.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

namespace parcae {
namespace {

using kind = device_lock::kind;

struct device_lock_test : ::testing::Test {
  const scratch_folder folder{"device-lock"};

  /// What the next one is told; empty: it may go on.
  std::string problem(const std::string& unique, kind how) const {
    return thrown_by([&] { const device_lock x(unique, "cuda:0", how, folder.path()); });
  }
};

// given: a GPU that a node has, alone or with others, and another node / expected: refused in words, unless both share
// it, or it is another GPU, or the first is gone
TEST_F(device_lock_test, a_gpu_is_promised_once) {
  const auto taken = "another node computes on cuda:0 (GPU-1) already: give each its share with --slot-memory, or "
                     "another GPU with --device";
  {
    const device_lock first("GPU-1", "cuda:0", kind::alone, folder.path());
    EXPECT_EQ(problem("GPU-1", kind::alone), taken);
    EXPECT_EQ(problem("GPU-1", kind::shared), taken);
    EXPECT_EQ(problem("GPU-2", kind::alone), "");
  }
  const device_lock first("GPU-1", "cuda:0", kind::shared, folder.path());
  EXPECT_EQ(problem("GPU-1", kind::shared), "");
  EXPECT_EQ(problem("GPU-1", kind::alone), taken);
}

// given: a node that is killed while another waits for its GPU, and a folder that is not there / expected: nobody is
// refused
TEST_F(device_lock_test, what_a_killed_node_had_is_free) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const auto child = fork();
  if (child == 0) {
    const device_lock held("GPU-1", "cuda:0", kind::alone, folder.path());
    static_cast<void>(write(ready[1], "x", 1));
    pause();
  }
  char x = 0;
  ASSERT_EQ(read(ready[0], &x, 1), 1);
  kill(child, SIGKILL);
  EXPECT_EQ(problem("GPU-1", kind::alone), "");
  waitpid(child, nullptr, 0);
  EXPECT_NO_THROW(device_lock("GPU-1", "cuda:0", kind::alone, "/nowhere"));
  EXPECT_NO_THROW(device_lock("", "cpu", kind::alone, folder.path()));
}

} // namespace
} // namespace parcae
