#include "runtime/link/payload_check.hpp"

#include <caf/all.hpp>

#include <algorithm>
#include <array>

namespace parcae {

namespace {

/// Messages within messages; errors have some.
constexpr int most_depth = 4;

// CAF's own types that Parcae never sends, and that reach deeper into CAF.
constexpr std::array<std::string_view, 6> unwelcome{"@group",          "@group_down",   "@open_stream_msg",
                                                    "@downstream_msg", "@upstream_msg", "@config_value"};

bool welcome(std::string_view types) {
  for (std::size_t i = 0; i < types.size();) {
    const auto end = std::min(types.find('+', i), types.size());
    if (std::ranges::find(unwelcome, types.substr(i, end - i)) != unwelcome.end())
      return false;
    i = end + 1;
  }
  return true;
}

/// CAF's binary format, believing no length. What fails is remembered: reading a message, CAF forgets it.
class wary_source : public caf::deserializer {
public:
  wary_source(caf::execution_unit* context, std::span<const char> bytes) :
      deserializer(context), bytes_(context, bytes.data(), bytes.size()) {}

  /// Everything could be read, to the end.
  bool good() const { return !failed_ && bytes_.remaining() == 0; }

  caf::error begin_object(std::uint16_t& type, std::string& name) override {
    if (++depth_ > most_depth)
      return fail();
    if (auto e = read(type))
      return e;
    if (type != 0)
      return fail(); // CAF always sends names
    if (auto e = apply_impl(name))
      return e;
    return welcome(name) ? caf::error() : fail();
  }

  caf::error end_object() override {
    --depth_;
    return caf::none;
  }

  caf::error begin_sequence(std::size_t& size) override {
    if (bytes_.begin_sequence(size))
      return fail();
    // An element takes a byte at least; eight of a vector of bools share one.
    return size <= 8 * bytes_.remaining() ? caf::error() : fail();
  }

  caf::error end_sequence() override { return bytes_.end_sequence(); }

  caf::error apply_raw(std::size_t size, void* to) override {
    return size <= bytes_.remaining() && !bytes_.apply_raw(size, to) ? caf::error() : fail();
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
    if (size > bytes_.remaining())
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
    return bytes_.apply(x) ? fail() : caf::error();
  }

  caf::binary_deserializer bytes_;
  int depth_ = 0;
  bool failed_ = false;
};

// Handles of other nodes are read and come to nothing.
class no_proxies : public caf::proxy_registry::backend {
public:
  caf::strong_actor_ptr make_proxy(caf::node_id, caf::actor_id) override { return nullptr; }
  void set_last_hop(caf::node_id*) override {}
};

// CAF takes who wants to be linked for an actor elsewhere, whatever it is.
bool links_an_actor_here(const caf::message& x) {
  if (!x.match_elements<caf::atom_value, caf::strong_actor_ptr>())
    return false;
  const auto what = x.get_as<caf::atom_value>(0);
  return (what == caf::link_atom::value || what == caf::unlink_atom::value) &&
         x.get_as<caf::strong_actor_ptr>(1) != nullptr;
}

} // namespace

payload_verdict check_payload(caf::actor_system& system, const frame_header& header, std::span<const char> payload) {
  if (payload.empty())
    return {};
  no_proxies nobody;
  caf::proxy_registry proxies(system, nobody);
  caf::scoped_execution_unit context(&system);
  context.proxy_registry_ptr(&proxies);
  wary_source source(&context, payload);
  payload_verdict result;
  caf::node_id other;
  caf::error problem;
  switch (header.kind) {
  case frame_kind::server_handshake: {
    std::vector<std::string> applications;
    caf::actor_id published = 0;
    std::set<std::string> interface;
    problem = source(result.node, applications, published, interface);
    break;
  }
  case frame_kind::client_handshake:
    problem = source(result.node);
    break;
  case frame_kind::monitor_message:
    problem = source(other, other);
    break;
  case frame_kind::down_message: {
    caf::error reason;
    problem = source(other, other, reason);
    break;
  }
  default: {
    std::vector<caf::strong_actor_ptr> stages;
    caf::message content;
    problem = source(stages, content);
    if (!problem && links_an_actor_here(content))
      return {"a link to an actor of this process", {}};
  }
  }
  if (problem || !source.good())
    return {"a payload that cannot be read", {}};
  return result;
}

} // namespace parcae
