#include "runtime/link/payload_check.hpp"

#include "protocols/choreography/build.hpp"
#include "protocols/wire/type_ids.hpp"

#include <caf/all.hpp>

#include <algorithm>
#include <set>

namespace parcae {

namespace {

/// Messages within messages: an error's details.
constexpr int max_depth = 2;
constexpr std::size_t max_of_others = 64 * 1024; ///< decoded, of what is no message

bool is_detail(std::string_view types) {
  return types == "@<>" || types == "@<>+@str";
}

/// CAF's binary format, believing no length. What fails is remembered: reading a message, CAF forgets it.
class wary_source : public caf::deserializer {
public:
  wary_source(caf::execution_unit* context, std::span<const char> bytes, const payload_terms& terms) :
      deserializer(context), bytes_(context, bytes.data(), bytes.size()), terms_(terms) {}

  /// Of a message: which it is. Null: none that may be.
  const permission* said() const { return said_; }

  /// Everything could be read, to the end.
  bool good() const { return !failed_ && bytes_.remaining() == 0; }
  bool too_large() const { return charged_ > most_; }

  caf::error begin_object(std::uint16_t& type, std::string& name) override {
    if (++depth_ > max_depth)
      return fail();
    if (auto e = read(type))
      return e;
    if (type != 0)
      return fail(); // CAF always sends names
    if (auto e = apply_impl(name))
      return e;
    const bool is_message = depth_ == 1 && terms_.may_be;
    return (is_message ? is_welcome(name) : is_detail(name)) ? caf::error() : fail();
  }

  caf::error end_object() override {
    --depth_;
    return caf::none;
  }

  caf::error begin_sequence(std::size_t& size) override {
    if (bytes_.begin_sequence(size))
      return fail();
    // An element takes a byte at least.
    return size <= bytes_.remaining() && charge(sizeof(std::vector<char>)) ? caf::error() : fail();
  }

  caf::error end_sequence() override { return bytes_.end_sequence(); }

  caf::error apply_raw(std::size_t size, void* to) override {
    return size <= bytes_.remaining() && charge(size) && !bytes_.apply_raw(size, to) ? caf::error() : fail();
  }

protected:
  caf::error apply_impl(std::int8_t& x) override { return read(x); }
  caf::error apply_impl(std::uint8_t& x) override { return read(x); }
  caf::error apply_impl(std::int16_t& x) override { return read(x); }
  caf::error apply_impl(std::uint16_t& x) override { return read(x); }
  caf::error apply_impl(std::int32_t& x) override { return read(x); }
  caf::error apply_impl(std::uint32_t& x) override { return read(x); }
  caf::error apply_impl(std::int64_t& x) override { return read(x); }
  caf::error apply_impl(std::uint64_t& x) override { return read(x); }
  caf::error apply_impl(float& x) override { return read(x); }
  caf::error apply_impl(double& x) override { return read(x); }

  caf::error apply_impl(std::string& x) override {
    std::size_t size = 0;
    if (auto e = begin_sequence(size))
      return e;
    if (!charge(sizeof(std::string)))
      return fail();
    x.resize(size);
    return size == 0 ? caf::error() : apply_raw(size, x.data());
  }

  // Nobody sends these.
  caf::error apply_impl(long double&) override { return fail(); }
  caf::error apply_impl(std::u16string&) override { return fail(); }
  caf::error apply_impl(std::u32string&) override { return fail(); }

private:
  caf::error fail() {
    failed_ = true;
    return caf::sec::end_of_stream;
  }

  template <class T>
  caf::error read(T& x) {
    return charge(sizeof x) && !bytes_.apply(x) ? caf::error() : fail();
  }

  /// So much memory it takes decoded.
  bool charge(std::size_t bytes) {
    charged_ += bytes;
    return !too_large();
  }

  bool is_welcome(const std::string& types) {
    for (const auto& x : permissions())
      if (x.types == types && terms_.may_be(x)) {
        said_ = &x;
        most_ = x.max_bytes;
        return true;
      }
    return false;
  }

  caf::binary_deserializer bytes_;
  const payload_terms& terms_;
  const permission* said_ = nullptr;
  std::size_t charged_ = 0;
  std::size_t most_ = max_of_others;
  int depth_ = 0;
  bool failed_ = false;
};

// Handles of other nodes are read and come to nothing.
class no_proxies : public caf::proxy_registry::backend {
public:
  explicit no_proxies(caf::node_id from) : from_(std::move(from)) {}

  caf::strong_actor_ptr make_proxy(caf::node_id node, caf::actor_id actor) override {
    if (node && node == from_ && actor != 0)
      actors.push_back(actor);
    else if (node || actor != 0) // else it is a null handle
      strange = true;
    return nullptr;
  }
  void set_last_hop(caf::node_id*) override {}

  std::vector<caf::actor_id> actors;
  bool strange = false; ///< there were some of another node

private:
  const caf::node_id from_;
};

/// What is needed to read payloads.
struct reader {
  reader(caf::actor_system& system, const caf::node_id& from) : backend(from), proxies(system, backend), unit(&system) {
    unit.proxy_registry_ptr(&proxies);
  }

  no_proxies backend;
  caf::proxy_registry proxies;
  caf::scoped_execution_unit unit;
};

/// Of this process. Proxies there are none.
std::vector<caf::actor_id> actors_of_ours(const caf::message& x) {
  std::vector<caf::actor_id> result;
  const auto add = [&](const auto& handle) {
    if (handle)
      result.push_back(handle.id());
  };
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (x.match_element<instance_actor>(i))
      add(x.get_as<instance_actor>(i));
    else if (x.match_element<report_sink>(i))
      add(x.get_as<report_sink>(i));
    else if (x.match_element<std::vector<slot_actor>>(i))
      std::ranges::for_each(x.get_as<std::vector<slot_actor>>(i), add);
  }
  return result;
}

/// An error's details reach logs and people.
bool has_plain_details(const caf::error& x) {
  return !x || x.context().empty() || x.context().match_elements<std::string>();
}

caf::error read_message(wary_source& source, payload_verdict& result) {
  std::vector<caf::strong_actor_ptr> stages;
  caf::message content;
  if (auto e = source(stages, content))
    return e;
  if (!source.good() || content.empty()) // CAF forgets errors inside messages, and would take it for an empty one
    return caf::sec::end_of_stream;
  result.said = source.said();
  if (!result.said || !stages.empty())
    result.problem = "a message with stages";
  else if (content.match_element<caf::atom_value>(0) && content.get_as<caf::atom_value>(0) != result.said->first)
    result.problem = "a message that nobody may say";
  else if (content.match_elements<caf::error>() && !has_plain_details(content.get_as<caf::error>(0)))
    result.problem = "an error with strange details";
  else if (!actors_of_ours(content).empty())
    result.problem = "a handle of another process";
  return {};
}

/// Whose actor ends or is to be monitored.
caf::error read_ends(wary_source& source, payload_verdict& result, const caf::node_id& from, const caf::node_id& to,
                     bool has_reason) {
  caf::node_id said_from, said_to;
  caf::error reason;
  if (auto e = has_reason ? source(said_from, said_to, reason) : source(said_from, said_to))
    return e;
  if (said_from != from || said_to != to || !has_plain_details(reason))
    result.problem = "news for or of a third node";
  return {};
}

bool is_node(const caf::node_id& x) {
  return x && caf::node_id::default_data::can_parse(caf::to_string(x)); // else of any length
}

} // namespace

payload_verdict check_payload(caf::actor_system& system, const frame_header& header, std::span<const char> payload,
                              const payload_terms& terms) {
  payload_verdict result;
  if (payload.empty())
    return result;
  reader tools(system, terms.from);
  wary_source source(&tools.unit, payload, terms);
  caf::error problem;
  switch (header.kind) {
  case frame_kind::server_handshake: {
    std::vector<std::string> applications;
    std::set<std::string> interface;
    problem = source(result.node, applications, result.published, interface);
    result.other_build = problem_of_manager(applications);
    break;
  }
  case frame_kind::client_handshake:
    problem = source(result.node);
    break;
  case frame_kind::monitor_message:
    problem = read_ends(source, result, terms.from, system.node(), false);
    break;
  case frame_kind::down_message:
    problem = read_ends(source, result, terms.from, system.node(), true);
    break;
  default:
    problem = read_message(source, result);
  }
  if (problem && header.kind == frame_kind::direct_message && !source.said())
    result.problem = "a message that nobody may say";
  else if (source.too_large())
    result.problem = "a message that is larger than it may be";
  else if (problem || !source.good())
    result.problem = "a payload that cannot be read";
  else if (header.kind <= frame_kind::client_handshake && !is_node(result.node))
    result.problem = "a handshake of nobody";
  else if (tools.backend.strange)
    result.problem = "a handle of another process";
  result.actors = std::move(tools.backend.actors);
  return result;
}

std::vector<caf::actor_id> actors_in(caf::actor_system& system, std::span<const char> payload) {
  reader tools(system, {});
  caf::binary_deserializer source(&tools.unit, payload.data(), payload.size());
  std::vector<caf::strong_actor_ptr> stages;
  caf::message content;
  if (source(stages, content))
    return {};
  return actors_of_ours(content);
}

} // namespace parcae
