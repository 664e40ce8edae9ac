#pragma once

// Whoever shakes hands as CAF does, and then says what nobody should.

#include "runtime/link/frame_gate.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <boost/endian/conversion.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace parcae {

class bare_peer {
public:
  /// Dials a manager on this machine, in plain TCP. `number`: another one is another node.
  explicit bare_peer(std::uint16_t port, std::uint32_t number = 1) : socket_(io_) {
    socket_.connect({boost::asio::ip::address_v4::loopback(), port});
    boost::asio::write(socket_, boost::asio::buffer(std::string_view("parcae control 1")));
    frame_header theirs;
    auto said = read_frame(theirs);
    constexpr std::size_t node_bytes = 8 + 4 + 20; // what kind of id it is, process, host
    node = said.substr(0, node_bytes);
    auto at = node_bytes + 1;
    for (auto names = static_cast<unsigned char>(said.at(node_bytes)); names > 0; --names)
      at += 1 + static_cast<unsigned char>(said.at(at));
    front = boost::endian::load_big_u64(reinterpret_cast<const unsigned char*>(said.substr(at, 8).data()));
    self = node;
    boost::endian::store_big_u32(reinterpret_cast<unsigned char*>(self.data()) + 8, number);
    frame_header x;
    x.kind = frame_kind::client_handshake;
    say(x, self);
    x.flags = frame_header::select_connection;
    say(x, self);
  }

  /// False: the connection has ended.
  bool say(frame_header x, std::string_view payload) {
    x.payload_bytes = static_cast<std::uint32_t>(payload.size());
    const auto header = encode_header(x);
    boost::system::error_code ended;
    boost::asio::write(socket_, boost::asio::buffer(std::string(header.begin(), header.end()).append(payload)), ended);
    return !ended;
  }

  /// A message to an actor, as CAF numbers them.
  bool say(std::uint64_t to, std::uint64_t id, std::string_view content, std::uint64_t from = 0) {
    frame_header x;
    x.kind = frame_kind::direct_message;
    x.data = id;
    x.source = from;
    x.destination = to;
    return say(x, content);
  }

  /// Until the other side has ended the connection; what it said meanwhile. Waits as long as the caller's test may.
  std::string rest() {
    std::string result;
    boost::system::error_code end;
    boost::asio::read(socket_, boost::asio::dynamic_buffer(result), end);
    return result;
  }

  /// What has come in meanwhile, which may be nothing.
  std::string heard() {
    boost::system::error_code ended;
    std::string result(socket_.available(ended), '\0');
    boost::asio::read(socket_, boost::asio::buffer(result), ended);
    return result;
  }

  std::string read_frame(frame_header& x) {
    std::vector<char> header(frame_header::size);
    boost::asio::read(socket_, boost::asio::buffer(header));
    x = decode_header(header);
    std::string result(x.payload_bytes, '\0');
    boost::asio::read(socket_, boost::asio::buffer(result));
    return result;
  }

  static constexpr std::uint64_t statement = 0x1000'0000'0000'0000, answer = 0x8000'0000'0000'0000;

  std::string node;        ///< of the manager, as CAF writes it
  std::string self;        ///< likewise
  std::uint64_t front = 0; ///< the actor that is published

private:
  boost::asio::io_context io_;
  boost::asio::ip::tcp::socket socket_;
};

} // namespace parcae
