#include "protocols/store/s3_store.hpp"

#include "protocols/store/ranged_reader.hpp"
#include "protocols/store/s3_answers.hpp"
#include "protocols/store/s3_client.hpp"
#include "protocols/store/s3_upload.hpp"

#include <algorithm>
#include <charconv>

namespace parcae {

namespace {

constexpr std::size_t max_entries = 100'000;

class s3_object : public ranged_reader {
public:
  s3_object(std::shared_ptr<s3_client> client, std::string key) :
      ranged_reader("s3://" + client->site().bucket + "/" + key, client->options().pace.window_bytes),
      client_(std::move(client)), key_(std::move(key)) {
    const auto head = client_->ask({.method = "HEAD", .key = key_});
    const auto length = head.header("Content-Length");
    std::uint64_t bytes = 0;
    const auto [end, bad] = std::from_chars(length.data(), length.data() + length.size(), bytes);
    if (length.empty() || bad != std::errc{} || end != length.data() + length.size())
      throw store_error(store_trouble::unreachable, place() + ": the server does not say its size");
    set_size(bytes);
    tag_ = head.header("ETag");
  }

  std::string tag() const override { return tag_; }

protected:
  void fetch(std::uint64_t from, std::span<std::byte> to) override {
    if (to.empty())
      return;
    s3_request request{
        .key = key_,
        .headers = {{"Range", "bytes=" + std::to_string(from) + "-" + std::to_string(from + to.size() - 1)}},
        .into = to,
        .also = {412, 416}};
    if (!tag_.empty())
      request.headers.emplace_back("If-Match", tag_);
    const auto answer = client_->ask(request);
    if (answer.status == 412 || answer.status == 416)
      throw store_error(store_trouble::damaged, place() + " was replaced while it was read");
    if (answer.body_bytes != to.size() || (answer.status != 206 && to.size() != size()))
      throw store_error(store_trouble::unreachable, place() + ": the server sent another range than asked for");
  }

private:
  const std::shared_ptr<s3_client> client_;
  const std::string key_;
  std::string tag_; ///< of what is read; empty: the server has none
};

class s3_store : public object_store {
public:
  s3_store(std::shared_ptr<s3_client> client, std::string prefix) :
      client_(std::move(client)), prefix_(std::move(prefix)),
      place_("s3://" + client_->site().bucket + (prefix_.empty() ? "" : "/" + prefix_)) {}

  const std::string& place() const override { return place_; }

  std::shared_ptr<object_store> below(const std::string& name) const override {
    return std::make_shared<s3_store>(client_, key_of(name));
  }

  stored_list list() const override {
    stored_list result;
    const auto prefix = prefix_.empty() ? "" : prefix_ + "/";
    s3_request request{.query = {{"list-type", "2"}, {"delimiter", "/"}, {"prefix", prefix}}};
    for (;;) {
      const auto part = read_listing(client_->ask(request).body);
      if (!part)
        throw store_error(store_trouble::unreachable, place_ + ": " + part.error());
      for (const auto& x : part->objects)
        if (x.name.starts_with(prefix) && x.name.size() > prefix.size() &&
            x.name.find('/', prefix.size()) == x.name.npos)
          result.objects.push_back({x.name.substr(prefix.size()), x.bytes, x.written});
      for (const auto& x : part->prefixes)
        if (x.starts_with(prefix) && x.size() > prefix.size() + 1 && x.ends_with('/'))
          result.folders.push_back(x.substr(prefix.size(), x.size() - prefix.size() - 1));
      if (part->next.empty())
        break;
      if (result.objects.size() + result.folders.size() > max_entries ||
          part->objects.size() + part->prefixes.size() == 0)
        throw store_error(store_trouble::unreachable, place_ + " has more than 100000 objects; name a deeper prefix");
      request.query = {{"list-type", "2"}, {"delimiter", "/"}, {"prefix", prefix}, {"continuation-token", part->next}};
    }
    std::ranges::sort(result.objects, {}, &stored_object::name);
    std::ranges::sort(result.folders);
    return result;
  }

  std::unique_ptr<object_reader> open(const std::string& name) const override {
    return std::make_unique<s3_object>(client_, key_of(name));
  }

  std::unique_ptr<object_writer> create(const std::string& name, std::uint64_t bytes) override {
    return begin_upload(client_, key_of(name), bytes);
  }

  bool put_if_absent(const std::string& name, std::span<const std::byte> bytes) override {
    const auto answer = client_->ask(
        {.method = "PUT", .key = key_of(name), .headers = {{"If-None-Match", "*"}}, .body = bytes, .also = {412}});
    if (answer.status != 412)
      return true;
    // Ours, perhaps: an attempt whose answer was lost.
    return holds(name, bytes);
  }

  void remove(const std::string& name) override {
    client_->ask({.method = "DELETE", .key = key_of(name), .also = {404}});
  }

  void give_up_unfinished(const std::function<bool(std::string_view)>& ours) override {
    give_up_uploads(*client_, prefix_.empty() ? "" : prefix_ + "/", ours);
  }

private:
  std::string key_of(const std::string& name) const { return prefix_.empty() ? name : prefix_ + "/" + name; }

  const std::shared_ptr<s3_client> client_;
  const std::string prefix_;
  const std::string place_;
};

std::shared_ptr<s3_client> client_for(const s3_place& place, const store_options& options) {
  return std::make_shared<s3_client>(site_of(place.bucket, options), options);
}

s3_place place_in(const std::string& text) {
  auto place = parse_s3_place(text);
  if (!place)
    throw store_error(store_trouble::unreachable, text + " " + place.error());
  return *place;
}

} // namespace

std::shared_ptr<object_store> open_s3_store(const std::string& text, const store_options& options) {
  const auto place = place_in(text);
  return std::make_shared<s3_store>(client_for(place, options), place.prefix);
}

std::unique_ptr<object_reader> open_s3_object(const std::string& text, const store_options& options) {
  const auto place = place_in(text);
  return std::make_unique<s3_object>(client_for(place, options), place.prefix);
}

} // namespace parcae
