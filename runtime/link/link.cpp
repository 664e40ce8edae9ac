#include "runtime/link/link.hpp"

#include "protocols/wire/type_ids.hpp"
#include "runtime/link/hub.hpp"

#include <caf/all.hpp>
#include <caf/io/all.hpp>
#include <caf/io/basp_broker.hpp>
#include <caf/io/middleman_actor_impl.hpp>
#include <caf/io/network/default_multiplexer.hpp>
#include <caf/io/network/scribe_impl.hpp>

#include <unistd.h>

#include <atomic>

namespace parcae {

namespace {

using caf::io::network::default_multiplexer;

// CAF numbers connections by their descriptors, and handles the end of one late: it could mean its successor.
std::int64_t next_handle() {
  static std::atomic<std::int64_t> last{std::int64_t{1} << 40};
  return ++last;
}

// Closes what nobody took.
class descriptor {
public:
  explicit descriptor(int x) : value_(x) {}
  descriptor(const descriptor&) = delete;
  descriptor& operator=(const descriptor&) = delete;
  ~descriptor() {
    if (value_ >= 0)
      ::close(value_);
  }
  int release() { return std::exchange(value_, -1); }

private:
  int value_;
};

/// CAF's end of a socket pair. Knows who is behind the other, which CAF's own would ask the descriptor for, and abort.
class pair_scribe : public caf::io::network::scribe_impl {
public:
  pair_scribe(default_multiplexer& multiplexer, int fd, std::string host, std::uint16_t port) :
      scribe_impl(multiplexer, fd), host_(std::move(host)), port_(port) {
    hdl_ = caf::io::connection_handle::from_int(next_handle());
    msg().handle = hdl_;
  }

  std::string addr() const override { return host_; }
  std::uint16_t port() const override { return port_; }

private:
  std::string host_;
  std::uint16_t port_;
};

/// A doorman to whom the hub brings who was let in. Its own functions run on CAF's thread.
class hub_doorman : public caf::io::doorman {
public:
  hub_doorman(default_multiplexer& multiplexer, hub& to, std::string host) :
      doorman(caf::io::accept_handle::from_int(next_handle())), multiplexer_(multiplexer), hub_(to),
      host_(std::move(host)) {}

  /// Empty, or what is wrong.
  std::string listen(std::uint16_t port) {
    const auto x = hub_.listen(
        host_, port,
        [self = caf::intrusive_ptr<hub_doorman>(this)](int fd, const std::string& host, std::uint16_t from) {
          auto end = std::make_shared<descriptor>(fd);
          self->multiplexer_.post([=] {
            if (self->detached())
              return;
            auto arrived = caf::make_counted<pair_scribe>(self->multiplexer_, end->release(), host, from);
            const auto handle = arrived->hdl();
            self->parent()->add_scribe(std::move(arrived));
            static_cast<doorman*>(self.get())->new_connection(&self->multiplexer_, handle);
          });
        });
    number_ = x.number;
    port_ = x.port;
    return x.problem;
  }

  bool new_connection() override { return false; }
  void launch() override {}
  void add_to_loop() override {}
  void remove_from_loop() override {}
  std::string addr() const override { return host_; }
  std::uint16_t port() const override { return port_; }

  void graceful_shutdown() override {
    hub_.stop_listening(number_);
    detach(&multiplexer_, false);
  }

private:
  default_multiplexer& multiplexer_;
  hub& hub_;
  std::string host_;
  std::uint64_t number_ = 0;
  std::uint16_t port_ = 0;
};

/// CAF's middleman, but what it opens leads through the hub.
class hub_middleman : public caf::io::middleman_actor_impl {
public:
  hub_middleman(caf::actor_config& config, caf::actor broker, hub* to) :
      middleman_actor_impl(config, std::move(broker)), hub_(*to),
      multiplexer_(dynamic_cast<default_multiplexer&>(system().middleman().backend())) {}

protected:
  caf::expected<caf::io::scribe_ptr> connect(const std::string& host, std::uint16_t port) override {
    const auto x = hub_.dial(host, port);
    if (x.refused)
      return caf::make_error(parcae_error::not_permitted, x.problem);
    if (x.descriptor < 0)
      return caf::make_error(x.silent ? caf::sec::connection_timeout : caf::sec::cannot_connect_to_node, x.problem);
    return caf::io::scribe_ptr(caf::make_counted<pair_scribe>(multiplexer_, x.descriptor, host, port));
  }

  caf::expected<caf::io::doorman_ptr> open(std::uint16_t port, const char* host, bool) override {
    auto x = caf::make_counted<hub_doorman>(multiplexer_, hub_, host ? host : "127.0.0.1");
    if (const auto problem = x->listen(port); !problem.empty())
      return caf::make_error(caf::sec::cannot_open_port, problem);
    return caf::io::doorman_ptr(std::move(x));
  }

  caf::expected<caf::io::datagram_servant_ptr> contact(const std::string&, std::uint16_t) override {
    return caf::sec::cannot_connect_to_node;
  }

  caf::expected<caf::io::datagram_servant_ptr> open_udp(std::uint16_t, const char*, bool) override {
    return caf::sec::cannot_open_port;
  }

private:
  hub& hub_;
  default_multiplexer& multiplexer_;
};

} // namespace

network_side::network_side(const link_options& options) : hub_(std::make_unique<hub>(options)) {}

network_side::~network_side() = default;

std::string network_side::read_bundle_again() {
  return hub_->read_bundle_again();
}

std::string network_side::certificate_problem() const {
  return hub_->certificate_problem();
}

std::string network_side::other_build() const {
  return hub_->other_build();
}

peer_lookup network_side::peers() const {
  if (!hub_->has_bundle())
    return nullptr;
  return [x = hub_.get()](const caf::node_id& node) { return x->identity_of(node); };
}

caf_side::caf_side(caf::actor_system& system, network_side& to) : system_(system), network_(to) {
  auto& middleman = system.middleman();
  auto broker = middleman.named_broker<caf::io::basp_broker>(caf::atom("BASP"));
  network_.hub_->serve(&system);
  middleman_ = system.spawn<hub_middleman, caf::detached + caf::hidden>(std::move(broker), network_.hub_.get());
}

caf_side::~caf_side() {
  network_.hub_->serve(nullptr);
  caf::scoped_actor self(system_);
  self->send_exit(middleman_, caf::exit_reason::kill);
  self->wait_for(middleman_);
}

} // namespace parcae
