#include "protocols/store/web_object.hpp"

#include "protocols/base/printable.hpp"
#include "protocols/http/http_client.hpp"
#include "protocols/store/aws_credentials.hpp"
#include "protocols/store/ranged_reader.hpp"
#include "protocols/store/retry.hpp"
#include "protocols/store/s3_answers.hpp"
#include "protocols/store/url_rules.hpp"

#include <optional>
#include <utility>

namespace parcae {

namespace {

constexpr int max_redirections = 5;

/// Without its query, which may have a secret.
std::string shown(const std::string& url) {
  return printable(url.substr(0, url.find('?')), 300);
}

bool is_redirection(unsigned status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

class web_object : public ranged_reader {
public:
  web_object(const std::string& url, const store_options& options) :
      ranged_reader(shown(url), options.pace.window_bytes), options_(options) {
    const auto parsed = parse_http_url(url);
    if (!parsed)
      throw error("is no URL: it " + parsed.error());
    first_ = *parsed;
    look();
  }

  std::string tag() const override { return tag_; }

protected:
  void fetch(std::uint64_t from, std::span<std::byte> to) override {
    if (to.empty())
      return;
    auto answer = ask(from, to);
    if (answer.status == 401 || answer.status == 403) { // what it was redirected to was for a while only
      look();
      answer = ask(from, to);
    }
    if (answer.status != 206)
      throw error("was answered with HTTP status " + std::to_string(answer.status));
    if (size_in_content_range(answer.header("Content-Range")) != size() || answer.header("ETag") != tag_)
      throw store_error(store_trouble::damaged, place() + " was replaced while it was read");
    if (answer.body_bytes != to.size())
      throw error("was answered with another range than asked for");
  }

private:
  store_error error(const std::string& what) const { return {store_trouble::unreachable, place() + " " + what}; }

  /// Follows redirections to where it is, and asks for its first byte: what a server says to HEAD need not hold for
  /// GET.
  void look() {
    go_to(first_);
    for (int hops = 0;; ++hops) {
      std::byte byte{};
      const auto answer = ask(0, {&byte, 1});
      if (is_redirection(answer.status)) {
        if (hops == max_redirections)
          throw error("was redirected more than five times");
        go_to(redirected(std::string(answer.header("Location"))));
        continue;
      }
      const auto bytes = size_in_content_range(answer.header("Content-Range"));
      if (answer.status == 404 || answer.status == 410)
        throw store_error(store_trouble::absent, place() + " is not there");
      if (answer.status == 416 && bytes == 0) // there is no first byte
        return see(0, answer);
      if (answer.status == 200)
        throw error("cannot be read in ranges from this server");
      if (answer.status != 206 || !bytes)
        throw error("was answered with HTTP status " + std::to_string(answer.status));
      return see(*bytes, answer);
    }
  }

  void see(std::uint64_t bytes, const http_answer& answer) {
    const std::string tag(answer.header("ETag"));
    if (seen_ && (bytes != size() || tag != tag_))
      throw store_error(store_trouble::damaged, place() + " was replaced while it was read");
    seen_ = true;
    set_size(bytes);
    tag_ = tag;
  }

  http_url redirected(const std::string& location) const {
    auto to = location.starts_with("/") && !location.starts_with("//") ? parse_http_url(at_.server.text() + location)
                                                                       : parse_http_url(location);
    if (!to)
      throw error("was redirected to what " + to.error());
    if (at_.server.tls && !to->server.tls)
      throw error("was redirected from https to http");
    return *to;
  }

  void go_to(http_url url) {
    url.server.elsewhere = !require_allowed(url.server.text() + url.target, options_.places);
    if (!client_ || url.server != at_.server)
      client_.reset();
    at_ = std::move(url);
  }

  http_answer ask(std::uint64_t from, std::span<std::byte> to) {
    const http_request request{
        "GET", at_.target, {{"Range", "bytes=" + std::to_string(from) + "-" + std::to_string(from + to.size() - 1)}}};
    auto limits = limits_of(options_.pace, to.size());
    for (unsigned attempt = 1;; ++attempt) {
      if (!client_)
        client_ = std::make_unique<http_client>(at_.server, trust());
      auto answer = client_->ask(request, limits, options_.stop, to);
      if (answer && !may_pass(answer->status))
        return *answer;
      const auto why = answer ? "HTTP status " + std::to_string(answer->status) : answer.error();
      if (!answer)
        client_.reset();
      if (attempt >= options_.pace.attempts ||
          !pause(pause_after(attempt, options_.pace, random_number()), options_.stop))
        throw error("cannot be read: " + at_.server.text() + ": " + why + " (" + std::to_string(attempt) +
                    " attempts)");
    }
  }

  http_trust trust() {
    if (at_.server.tls && !trust_)
      try {
        trust_ = make_http_trust(environment("AWS_CA_BUNDLE"));
      } catch (const std::runtime_error& e) {
        throw store_error(store_trouble::unreachable, e.what());
      }
    return trust_;
  }

  const store_options options_;
  http_url first_, at_; ///< as it was named; where it is
  http_trust trust_;
  std::unique_ptr<http_client> client_; ///< to where it is; null: not connected
  std::string tag_;                     ///< of what is read; empty: the server has none
  bool seen_ = false;
};

} // namespace

std::unique_ptr<object_reader> open_web_object(const std::string& url, const store_options& options) {
  return std::make_unique<web_object>(url, options);
}

} // namespace parcae
