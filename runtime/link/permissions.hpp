#pragma once

// The list of what may be said over a control connection. What is not on it ends the connection, before CAF sees it.

#include <caf/atom.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace parcae {

/// Who is at the other end of a connection.
enum class speaker : std::uint8_t {
  manager, ///< was dialled
  member,  ///< has a certificate to join
  client,  ///< has a certificate to ask and command
  anyone,  ///< there are no certificates: may say what members and commands may
};

/// What an actor of this process is to the other side, which has been told of it.
enum class standing : std::uint8_t {
  sender,   ///< has said something
  front,    ///< is published at the manager's port
  sink,     ///< hears a job's reports
  instance, ///< has said HELLO
  slot,     ///< came with HELLO
};

/// How a message is said.
enum class manner : std::uint8_t {
  statement, ///< nobody waits for an answer
  question,
  answer, ///< to one question of ours, once, no matter who of us asked it
};

/// A message of these types may be said.
struct permission {
  speaker says = speaker::anyone; ///< never `anyone`
  manner how = manner::statement;
  std::string_view what; ///< for people; of a variant's alternatives the same
  standing to = standing::sender;
  std::size_t max_bytes = 0; ///< once decoded
  std::string types;         ///< as CAF writes them
  caf::atom_value first{};   ///< its first element, if that is an atom
};

/// All there are. Any thread.
std::span<const permission> permissions();

bool may_say(speaker x, const permission& what);

/// The largest payload of a frame from there.
std::size_t max_message_bytes(speaker x);

/// The same list as a table in Markdown, as README.md has it.
std::string table_of_permissions();

} // namespace parcae
