// Uploads to S3 against what a bare socket sends, in one run on loopback, to a server that reads and forgets. Half a
// gigabyte in parts of 64 MiB, three at a time, copied, with SHA-256 and MD5 of each (there is no TLS here), against
// one thread that sends as much in one request. Prints rates in MB/s and their ratio; fails if that is below its bound.

#include "protocols/store/store.hpp"
#include "tests/bench/figures.hpp"
#include "tests/bench/measure.hpp"

#include <boost/asio/connect.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/write.hpp>

#include <algorithm>
#include <cstdlib>
#include <thread>
#include <vector>

using namespace parcae;

namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

constexpr std::size_t total = std::size_t{512} << 20;
constexpr int rounds = 5;
constexpr double least_ratio = 0.15; // two digests of each byte, and a copy
constexpr double least_rate = 150;   // MB/s: more than a link of 1 Gbit/s takes

/// Answers all requests well, and forgets them.
class sink {
public:
  sink() : acceptor_(io_, {asio::ip::address_v4::loopback(), 0}) {
    std::thread([this] {
      for (;;)
        std::thread([socket = acceptor_.accept()]() mutable { serve(socket); }).detach();
    }).detach();
  }

  std::uint16_t port() const { return acceptor_.local_endpoint().port(); }

private:
  static void serve(tcp::socket& socket) {
    std::string head;
    std::vector<char> body(1 << 20);
    boost::system::error_code over;
    for (;;) {
      const auto end = asio::read_until(socket, asio::dynamic_buffer(head), "\r\n\r\n", over);
      if (over)
        return;
      const auto at = head.find("Content-Length: ");
      auto left = at < end ? std::strtoull(head.c_str() + at + 16, nullptr, 10) : 0;
      left -= std::min<std::size_t>(left, head.size() - end);
      const bool begins = head.find("uploads=") < head.find('\r');
      head.clear();
      while (left > 0 && !over)
        left -= socket.read_some(asio::buffer(body.data(), std::min<std::size_t>(left, body.size())), over);
      const std::string text =
          begins ? "<InitiateMultipartUploadResult><UploadId>1</UploadId></InitiateMultipartUploadResult>" : "";
      asio::write(socket,
                  asio::buffer("HTTP/1.1 200 OK\r\nETag: \"1\"\r\nContent-Length: " + std::to_string(text.size()) +
                               "\r\n\r\n" + text),
                  over);
    }
  }

  asio::io_context io_;
  tcp::acceptor acceptor_;
};

template <class Function>
double mb_per_s(Function f) {
  std::vector<double> rates;
  for (int i = 0; i < rounds; ++i) {
    const auto begin = steady::now();
    f();
    rates.push_back(total / 1e3 / since_ms(begin));
  }
  return median(rates);
}

} // namespace

int main() {
  auto& server = *new sink; // its threads end with the process
  const std::vector<std::byte> bytes(total, std::byte{7});
  const auto bare = mb_per_s([&] {
    asio::io_context io;
    tcp::socket socket(io);
    socket.connect({asio::ip::address_v4::loopback(), server.port()});
    asio::write(socket, asio::buffer("PUT / HTTP/1.1\r\nContent-Length: " + std::to_string(total) + "\r\n\r\n"));
    asio::write(socket, asio::buffer(bytes.data(), bytes.size()));
    std::string answer;
    asio::read_until(socket, asio::dynamic_buffer(answer), "\r\n\r\n");
  });
  for (const auto* name : {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"})
    setenv(name, "bench", 1);
  const auto store = open_store("s3://bucket/prefix",
                                {.endpoint = "http://127.0.0.1:" + std::to_string(server.port()), .region = "x"});
  const auto uploaded = mb_per_s([&] {
    const auto writer = store->create("object", total);
    for (std::size_t at = 0; at < total; at += 1 << 20)
      writer->write(std::span(bytes).subspan(at, 1 << 20));
    writer->publish();
  });
  figures result;
  result.only_shown("bare socket, MB/s", bare);
  result.at_least("upload, MB/s", uploaded, least_rate);
  result.at_least("upload over bare socket", uploaded / bare, least_ratio);
  return result.status();
}
