#pragma once

// What NCCL's double knows of its participants; of nccl_double.cpp.

#include "tests/support/nccl_double.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace parcae::testing {

struct double_participant;
struct double_communicator;

struct double_operation {
  bool sends;
  std::uint32_t peer;
  std::byte* bytes;
  std::size_t n;
  bool garbled = false;
};

struct double_group {
  std::vector<double_operation> operations;
  stream* on = nullptr;
  std::thread::id thread = std::this_thread::get_id();
  bool failed = false;                                     ///< a call within it
  std::uint64_t events = 0;                                ///< of the stream, when the group was ended
  std::map<std::uint32_t, const double_group*> other_ends; ///< by participant
};

/// An operation whose turn in its stream has come.
struct double_transfer {
  double_communicator* owner;
  double_group* of;
  double_operation what;
  bool done = false;
};

struct double_communicator {
  double_participant* by;
  std::uint64_t id;
  std::uint32_t rank;
  nccl_result now = nccl_result::in_progress;
  bool spoiled = false, aborted = false;
  std::thread::id thread;
  std::vector<device_memory> memory;
  std::set<std::uint32_t> peers; ///< with which it is connected
};

struct double_participant {
  std::uint32_t rank;
  device* on = nullptr;
  std::string error = "the double says so"; ///< the last
  std::size_t calling = 0;
  bool dead = false;
  std::array<std::uint64_t, nccl_calls> calls{};
  std::shared_ptr<double_group> open;
  double_communicator* open_on = nullptr;
  std::vector<std::shared_ptr<double_communicator>> communicators;
};

} // namespace parcae::testing
