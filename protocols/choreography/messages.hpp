#pragma once

// What nodes and commands say to the manager, and what it answers, besides the choreography.

#include "protocols/base/described.hpp"
#include "protocols/values/costs.hpp"
#include "protocols/values/gpu_state.hpp"
#include "protocols/values/ids.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace parcae {

/// Version of the actor messages between nodes. A change of any message, type name or meaning raises it.
inline constexpr std::uint32_t protocol_version = 30;

/// The same as CAF's application identifier: a client refuses a server of another version before the first message.
inline std::string application_identifier() {
  return "parcae-" + std::to_string(protocol_version);
}

enum class role : std::uint8_t {
  worker = 1, ///< its slots train, or serve
  keeper,     ///< holds snapshots in host memory, does not train
  gateway,    ///< answers requests for a model that workers serve
};

/// "worker", "keeper" or "gateway".
std::string to_string(role x);
std::optional<role> parse_role(std::string_view text);

/// What instances share that run on the same machine.
struct machine_facts {
  static constexpr std::size_t longest_id = 200;

  std::string id;          ///< equal for all on it; empty: not known, taken for a machine of its own
  std::uint32_t cores = 0; ///< that its instances may use, all together; 0: not known
  std::uint64_t bytes = 0; ///< its memory; 0: not known

  friend bool operator==(const machine_facts&, const machine_facts&) = default;
};
BOOST_DESCRIBE_STRUCT(machine_facts, (), (id, cores, bytes))

/// How long they have been there, by a clock that never jumps: what is rented is paid for from then on.
struct instance_ages {
  std::uint64_t process_ms = 0; ///< 0: not known
  std::uint64_t machine_ms = 0; ///< since it was booted; likewise

  friend bool operator==(const instance_ages&, const instance_ages&) = default;
};
BOOST_DESCRIBE_STRUCT(instance_ages, (), (process_ms, machine_ms))

/// Whom a command is for. CAF knows actors by host, process id and number. A later process may have the same ones, and
/// must not obey what was meant for the one before.
struct addressee {
  slot_id slot;
  job_id job;

  friend bool operator==(const addressee&, const addressee&) = default;
};
BOOST_DESCRIBE_STRUCT(addressee, (), (slot, job))

/// What `processor` of HELLO says of each plug-in, in the order in which they were opened. A library may change what
/// LibTorch does, so a worker with another one computes other bits.
inline std::string plugin_fact(const std::string& sha256) {
  return ", plug-in " + sha256;
}

/// HELLO: an instance introduces one of its lives.
struct hello {
  std::uint32_t protocol = protocol_version;
  std::string name;
  incarnation life;
  parcae::role role = parcae::role::worker;
  std::string host; ///< of its data port
  std::uint16_t port = 0;
  std::uint32_t slots = 1;
  /// Vendor, family, model and instruction set of the processor, LibTorch version, device type, plug-ins. Slots with
  /// equal facts compute equal bits.
  std::string processor;
  slot_memory memory;             ///< of one slot
  std::uint64_t manager_life = 0; ///< of the manager that welcomed this life; 0: none yet
  std::uint64_t manager = 0;      ///< the last one that welcomed this life, as in `welcome`
  machine_facts machine;
  std::string pool; ///< of the manager's market that it was rented of; empty: nobody's to give back
  /// What its cloud says, in one line of at most longest_warning bytes: why it leaves, or that it may have to. Empty:
  /// nothing. This and what follows are the only fields that change within a life.
  std::string warning;
  std::vector<gpu_state> gpus; ///< a slot's each, or one for all; of none: the processor computes
  instance_ages ages;          ///< when it says this
  std::string http;            ///< of a gateway: where it answers, "http://HOST:PORT"; at most longest_url bytes

  static constexpr std::size_t longest_warning = 400;
  static constexpr std::size_t longest_url = 300;
};
BOOST_DESCRIBE_STRUCT(hello, (),
                      (protocol, name, life, role, host, port, slots, processor, memory, manager_life, manager, machine,
                       pool, warning, gpus, ages, http))

/// The registry's answer to HELLO.
struct welcome {
  std::uint64_t manager_life = 0; ///< random per journal
  std::uint64_t manager = 0;      ///< random per process
};
BOOST_DESCRIBE_STRUCT(welcome, (), (manager_life, manager))

/// A life of an instance will end: SIGTERM, a notice of the cloud, a synthetic preemption.
struct leaving_notice {
  std::string name;
  incarnation life;
  std::uint64_t notice_ms = 0; ///< from when it is received
  std::string reason{};        ///< one line, for people; may be empty
};
BOOST_DESCRIBE_STRUCT(leaving_notice, (), (name, life, notice_ms, reason))

/// What a job would read or write on a node: `submit --check` asks one node of each role.
struct place_question {
  std::vector<std::string> read; ///< files, folders, URLs for a worker; tokenizers for a gateway
  std::string write;             ///< where checkpoints go, for a keeper; empty: its own folder
  std::string endpoint;          ///< of a store to write to
  std::string region;
};
BOOST_DESCRIBE_STRUCT(place_question, (), (read, write, endpoint, region))

struct place_answer {
  std::vector<std::string> problems; ///< one line each, for people
  std::vector<std::string> unknown;  ///< what could not be found out, likewise
};
BOOST_DESCRIBE_STRUCT(place_answer, (), (problems, unknown))

/// Bytes of a `request` or `reply` of client.hpp.
struct client_request {
  std::vector<char> bytes;
};
BOOST_DESCRIBE_STRUCT(client_request, (), (bytes))

struct client_reply {
  std::vector<char> bytes;
};
BOOST_DESCRIBE_STRUCT(client_reply, (), (bytes))

} // namespace parcae
