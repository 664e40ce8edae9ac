#pragma once

#include "gpu/device/cuda_library.hpp"
#include "protocols/choreography/messages.hpp"
#include "runtime/cloud/notice_poller.hpp"
#include "runtime/node/faults.hpp"
#include "runtime/process/address.hpp"
#include "runtime/process/logging.hpp"
#include "runtime/process/state_folder.hpp"

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace parcae {

struct node_options {
  manager_access manager;
  address listen;    ///< of the data port; no host: where the way to the manager begins, or loopback without a bundle
  address advertise; ///< of the data port, as other nodes dial it; no host, port 0: as it listens
  std::string name;
  std::string pool; ///< of the manager's market; empty: none
  parcae::role role = parcae::role::worker;
  device_choice device;
  bool trusts_network = false; ///< NCCL may connect to other hosts, though it neither authenticates nor encrypts
  std::vector<std::filesystem::path> plugins; ///< opened in this order
  std::optional<std::uint32_t> slots;         ///< 1 by default, or as many as there are GPUs
  std::uint64_t slot_bytes = 0;               ///< of memory, that a slot may take; 0: the machine's in equal parts
  std::chrono::milliseconds grace{30'000};    ///< from SIGTERM to the end at the latest
  cloud_options cloud;                        ///< whose notices count, too
  address http;                               ///< where a gateway answers; no host: it is none
  std::filesystem::path http_certificate;     ///< PEM files, of a chain and its key; empty: plain HTTP, on loopback
  std::filesystem::path http_key;
  std::filesystem::path api_keys;          ///< who may ask; empty: everybody
  std::filesystem::path state;             ///< a keeper's checkpoints; empty: default_state_folder()
  std::vector<std::filesystem::path> data; ///< jobs may use what is below these; empty: what this user may
  log_format log = log_format::text;
  std::vector<fault> faults;          ///< for tests
  std::chrono::microseconds naps{0};  ///< of executors between passes; for profiles
  std::uint64_t link_bytes_per_s = 0; ///< of each data connection; 0: as fast as it goes; for profiles
  std::filesystem::path loader_log;   ///< empty: none
  bool own_machine = false; ///< says nothing of its machine: planned with as if it shared its cores with nobody
};

/// Runs a node until it is released after a notice (SIGTERM or the cloud's), preempted, or refused by the manager;
/// returns the exit status. A second SIGTERM ends it at once. Throws std::runtime_error with one line if it cannot
/// start or was refused.
int run_node(const node_options& options);

} // namespace parcae
