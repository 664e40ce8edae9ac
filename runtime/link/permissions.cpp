#include "runtime/link/permissions.hpp"

#include "protocols/base/enum_text.hpp"
#include "protocols/client/client.hpp"
#include "protocols/wire/type_ids.hpp"

#include <algorithm>
#include <type_traits>
#include <variant>
#include <vector>

namespace parcae {

BOOST_DESCRIBE_ENUM(speaker, manager, member, client, anyone)
BOOST_DESCRIBE_ENUM(standing, sender, front, sink, instance, slot)
BOOST_DESCRIBE_ENUM(manner, statement, question, answer)

namespace {

constexpr std::size_t kib = 1024, mib = 1024 * kib;
constexpr std::size_t max_of_command = client_message_limit_bytes + 4 * kib;

/// As CAF writes a type's name on the wire.
template <class T>
std::string wire_name() {
  if constexpr (std::is_same_v<T, caf::atom_value>)
    return "@atom";
  else if constexpr (std::is_same_v<T, std::uint64_t>)
    return "@u64";
  else if constexpr (std::is_same_v<T, caf::error>)
    return "@error";
  else
    return caf::type_name<T>::value;
}

template <class... Ts>
std::string types_of() {
  return "@<>" + (("+" + wire_name<Ts>()) + ...);
}

/// One permission for each alternative of a variant, behind `First`.
template <class First, class... Ts>
void add_each(std::vector<permission>& to, const permission& like, std::type_identity<std::variant<Ts...>>) {
  for (auto types : {types_of<First, Ts>()...}) {
    to.push_back(like);
    to.back().types = std::move(types);
  }
}

std::vector<permission> all_permissions() {
  using enum speaker;
  using enum manner;
  const auto release = types_of<caf::atom_value>(), death = types_of<caf::atom_value, std::uint64_t>();
  std::vector<permission> result{
      {client, question, "client_request", standing::front, max_of_command, types_of<client_request>(), {}},
      {member, question, "client_request", standing::front, max_of_command, types_of<client_request>(), {}},
      {member,
       question,
       "hello, instance_actor, slot_actors",
       standing::front,
       256 * kib,
       types_of<hello, instance_actor, std::vector<slot_actor>>(),
       {}},
      {member, statement, "leaving_notice", standing::front, 16 * kib, types_of<leaving_notice>(), {}},
      {manager, answer, "client_reply", standing::sender, 8 * mib, types_of<client_reply>(), {}},
      {manager, answer, "welcome", standing::sender, 1 * kib, types_of<welcome>(), {}},
      {manager, answer, "error", standing::sender, 16 * kib, types_of<caf::error>(), {}},
      {manager, question, "place_question", standing::instance, 64 * kib, types_of<place_question>(), {}},
      {member, answer, "place_answer", standing::sender, 64 * kib, types_of<place_answer>(), {}},
      {member, answer, "error", standing::sender, 16 * kib, types_of<caf::error>(), {}},
      {manager, statement, "attach, addressee, report_sink", standing::slot, 16 * kib,
       types_of<caf::atom_value, addressee, report_sink>(), attach_atom::value},
      {manager, statement, "released", standing::instance, 1 * kib, release, released_atom::value},
      {manager, statement, "die, milliseconds", standing::instance, 1 * kib, death, die_atom::value},
  };
  add_each<addressee>(result, {manager, statement, "addressee, a command", standing::slot, 16 * mib, {}, {}},
                      std::type_identity<command>{});
  add_each<slot_id>(result, {member, statement, "slot_id, a report", standing::sink, 4 * mib, {}, {}},
                    std::type_identity<report>{});
  return result;
}

} // namespace

std::span<const permission> permissions() {
  static const auto result = all_permissions();
  return result;
}

bool may_say(speaker x, const permission& what) {
  return what.says == x || (x == speaker::anyone && what.says != speaker::manager);
}

std::size_t max_message_bytes(speaker x) {
  switch (x) {
  case speaker::manager:
    return 8 * mib;
  case speaker::client:
    return max_of_command;
  default:
    return 4 * mib;
  }
}

std::string table_of_permissions() {
  std::string result = "| who | how | what | to | at most, KiB |\n|---|---|---|---|---|\n", last;
  for (const auto& x : permissions()) {
    std::string line = "| ";
    for (const auto cell : {enum_name(x.says), enum_name(x.how), std::string_view(x.what), enum_name(x.to)})
      line.append(cell).append(" | ");
    line += std::to_string(x.max_bytes / kib) + " |\n";
    if (line != last)
      result += line;
    last = std::move(line);
  }
  return result;
}

} // namespace parcae
