#include "runtime/link/conversation.hpp"

#include "protocols/wire/type_ids.hpp"
#include "runtime/link/payload_check.hpp"

#include <caf/actor_system.hpp>

#include <algorithm>
#include <optional>
#include <string_view>

namespace parcae {

namespace {

// A message's id, as CAF makes it: flags, two bits of category, and a question's number.
constexpr std::uint64_t answer_flag = 0x8000'0000'0000'0000, normal = 0x1000'0000'0000'0000,
                        number_mask = 0x0FFF'FFFF'FFFF'FFFF;

constexpr double statement_cost = 0.04; ///< in questions

/// No value: neither a plain statement, nor a question or an answer. Streams are that, and what is urgent.
std::optional<manner> manner_of(std::uint64_t id) {
  switch (id & ~number_mask) {
  case normal:
    return (id & number_mask) == 0 ? manner::statement : manner::question;
  case normal | answer_flag:
    return (id & number_mask) == 0 ? std::nullopt : std::optional(manner::answer);
  default:
    return std::nullopt;
  }
}

/// Bytes of a payload that surely have the names of a message's types, if they are ours.
constexpr std::size_t title_bytes = 128;

bool begins_with(std::span<const char> payload, const std::string& types) {
  return std::string_view(payload.data(), std::min(payload.size(), title_bytes)).find(types) != std::string_view::npos;
}

const std::string& attach_types() {
  static const auto result = std::ranges::find(permissions(), caf::atom_value{attach_atom::value}, &permission::first);
  return result->types;
}

const std::string& hello_types() {
  static const auto result = std::ranges::find_if(permissions(), [](const permission& x) {
    return x.types.find(caf::type_name<hello>::value) != std::string::npos;
  });
  return result->types;
}

bool has_handles(std::span<const char> payload) {
  return begins_with(payload, attach_types()) || begins_with(payload, hello_types());
}

} // namespace

std::string conversation::hear(caf::actor_system& system, const frame_header& header, std::span<const char> payload) {
  if (header.kind != frame_kind::direct_message)
    heard_ += statement_cost;
  switch (header.kind) {
  case frame_kind::server_handshake:
  case frame_kind::client_handshake: {
    const auto verdict = check_payload(system, header, payload, {});
    if (!verdict.problem.empty())
      return verdict.problem;
    if (++handshakes_ > (here_ == link_side::accepted ? 2 : 1)) // CAF's client says it again when it was answered
      return "one handshake too many";
    if (verdict.node == system.node())
      return "a handshake as this process itself";
    if (node_ && verdict.node != node_)
      return "a handshake as another node than before";
    node_ = verdict.node;
    other_build_ = verdict.other_build;
    return verdict.published == 0 ? "" : know(verdict.published);
  }
  case frame_kind::direct_message:
    return hear_message(system, header, payload);
  case frame_kind::monitor_message: // CAF sends one for each actor that it hears of
    if (!told_.contains(header.destination))
      return "a wish to monitor an actor that it was not told of";
    return check_payload(system, header, payload, {node_}).problem;
  case frame_kind::down_message:
    actors_.erase(header.source);
    return check_payload(system, header, payload, {node_}).problem;
  default:
    return {};
  }
}

std::string conversation::hear_message(caf::actor_system& system, const frame_header& header,
                                       std::span<const char> payload) {
  const auto how = manner_of(header.data);
  if (!how)
    return "a message of a kind that nobody may say";
  heard_ += *how == manner::question ? 1 : statement_cost;
  const auto to = told_.find(header.destination);
  const bool is_answer = *how == manner::answer;
  if (is_answer ? !questions_.contains({header.destination, header.data}) : to == told_.end())
    return is_answer ? "an answer that nobody waits for" : "a message to an actor that it was not told of";
  if (*how == manner::question && header.source == 0)
    return "a question of nobody";
  const auto may_be = [&](const permission& x) {
    return x.how == *how && may_say(there_, x) && (is_answer || x.to == to->second);
  };
  const auto verdict = check_payload(system, header, payload, {node_, may_be});
  if (!verdict.problem.empty())
    return verdict.problem;
  if (is_answer)
    questions_.erase({header.destination, header.data});
  unanswered_ += *how == manner::question;
  for (auto actor : verdict.actors)
    if (auto problem = know(actor); !problem.empty())
      return problem;
  return header.source == 0 ? "" : know(header.source);
}

std::string conversation::know(caf::actor_id actor) {
  actors_.insert(actor);
  return actors_.size() <= max_actors ? "" : "more actors than a node may have";
}

void conversation::tell_of(caf::actor_id actor, standing what) {
  if (auto& known = told_.try_emplace(actor, what).first->second; known == standing::sender)
    known = what;
}

std::size_t conversation::looks_at(const frame_header& header, std::span<const char> begin) const {
  const std::size_t all = header.payload_bytes;
  switch (header.kind) {
  case frame_kind::server_handshake:
    return all;
  case frame_kind::direct_message:
    if (begin.size() < std::min(all, title_bytes))
      return std::min(all, title_bytes);
    return has_handles(begin) ? all : begin.size();
  default:
    return 0;
  }
}

bool conversation::say(caf::actor_system* system, const frame_header& header, std::span<const char> payload) {
  if (header.kind == frame_kind::server_handshake) {
    if (const auto front = system ? check_payload(*system, header, payload, {}).published : 0; front != 0)
      tell_of(front, standing::front);
    return true;
  }
  if (header.kind != frame_kind::direct_message)
    return true;
  if ((header.flags & frame_header::named_receiver) != 0)
    return false; // CAF asks each node for what it could spawn there, and keeps whatever is said to who asked
  if (system && has_handles(payload)) {
    const bool is_hello = begins_with(payload, hello_types());
    auto all = actors_in(*system, payload);
    for (std::size_t i = 0; i < all.size(); ++i)
      tell_of(all[i], !is_hello ? standing::sink : i == 0 ? standing::instance : standing::slot);
  }
  const auto how = manner_of(header.data);
  if (how == manner::answer && unanswered_ > 0)
    --unanswered_;
  if (header.source != 0) {
    tell_of(header.source, standing::sender);
    if (how == manner::question)
      questions_.insert({header.source, header.data | answer_flag});
  }
  return true;
}

void outgoing::pass(caf::actor_system* system, std::span<const char> bytes, std::vector<char>& out, conversation& to) {
  const auto take = [&](std::uint64_t most) {
    const auto result = bytes.first(static_cast<std::size_t>(std::min<std::uint64_t>(most, bytes.size())));
    bytes = bytes.subspan(result.size());
    return result;
  };
  while (!bytes.empty()) {
    if (left_ > 0) {
      const auto part = take(left_);
      left_ -= part.size();
      if (goes_)
        out.insert(out.end(), part.begin(), part.end());
      continue;
    }
    const auto wanted = [&] {
      if (begin_.size() < frame_header::size)
        return frame_header::size;
      const std::span<const char> seen(begin_);
      return frame_header::size + to.looks_at(decode_header(seen), seen.subspan(frame_header::size));
    };
    for (auto size = wanted(); begin_.size() < size && !bytes.empty(); size = wanted()) {
      const auto part = take(size - begin_.size());
      begin_.insert(begin_.end(), part.begin(), part.end());
    }
    if (begin_.size() < wanted())
      return;
    const auto header = decode_header(begin_);
    const auto seen = std::span<const char>(begin_).subspan(frame_header::size);
    left_ = header.payload_bytes - seen.size();
    goes_ = to.say(system, header, seen);
    if (goes_)
      out.insert(out.end(), begin_.begin(), begin_.end());
    begin_.clear();
  }
}

} // namespace parcae
