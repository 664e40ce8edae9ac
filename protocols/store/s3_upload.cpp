#include "protocols/store/s3_upload.hpp"

#include "protocols/store/s3_answers.hpp"

#include <algorithm>
#include <deque>
#include <future>

namespace parcae {

namespace {

constexpr std::uint64_t max_parts = 10'000; // of S3
constexpr int max_pages = 100;              // of a list

class upload : public object_writer {
public:
  upload(std::shared_ptr<s3_client> client, std::string key, std::uint64_t bytes) :
      client_(std::move(client)), key_(std::move(key)), bytes_(bytes),
      part_bytes_(std::max(client_->options().pace.part_bytes, (bytes + max_parts - 1) / max_parts)) {
    part_.reserve(std::min(part_bytes_, bytes));
  }

  ~upload() override {
    stop_.request_stop();
    on_their_way_.clear(); // waits for the threads
    if (!published_ && !id_.empty())
      try { // once, and not while all ends: the next start does it
        if (!client_->options().stop.stop_requested())
          client_->ask({.method = "DELETE", .key = key_, .query = {{"uploadId", id_}}, .once = true});
      } catch (const store_error&) {
      }
  }

  void write(std::span<const std::byte> bytes) override {
    written_ += bytes.size();
    while (!bytes.empty()) {
      const auto turn = bytes.first(std::min<std::uint64_t>(bytes.size(), part_bytes_ - part_.size()));
      part_.insert(part_.end(), turn.begin(), turn.end());
      bytes = bytes.subspan(turn.size());
      if (part_.size() == part_bytes_ && (written_ < bytes_ || !bytes.empty() || !id_.empty()))
        send_part();
    }
  }

  void publish() override {
    if (id_.empty()) {
      client_->ask({.method = "PUT", .key = key_, .body = part_});
      published_ = true;
      return;
    }
    if (!part_.empty())
      send_part();
    while (!on_their_way_.empty())
      wait_for_one();
    complete();
    published_ = true;
  }

private:
  struct sent_part {
    std::vector<std::byte> bytes; ///< freed to be filled again
    std::string tag;
  };

  void send_part() {
    if (id_.empty()) {
      auto id = read_upload_id(client_->ask({.method = "POST", .key = key_, .query = {{"uploads", ""}}}).body);
      if (!id)
        throw store_error(store_trouble::unreachable,
                          "s3://" + client_->site().bucket + "/" + key_ + ": " + id.error());
      id_ = std::move(*id);
    }
    auto next = std::vector<std::byte>();
    if (on_their_way_.size() >= client_->options().pace.parts_at_once)
      next = wait_for_one();
    on_their_way_.push_back(
        std::async(std::launch::async, [this, number = ++parts_, bytes = std::move(part_)]() mutable {
          auto answer = client_->ask({.method = "PUT",
                                      .key = key_,
                                      .query = {{"partNumber", std::to_string(number)}, {"uploadId", id_}},
                                      .body = bytes,
                                      .stop = stop_.get_token()});
          return sent_part{std::move(bytes), std::string(answer.header("ETag"))};
        }));
    part_ = std::move(next);
    part_.clear();
    part_.reserve(std::min(part_bytes_, bytes_));
  }

  std::vector<std::byte> wait_for_one() {
    auto first = std::move(on_their_way_.front());
    on_their_way_.pop_front();
    auto sent = first.get();
    tags_.push_back(std::move(sent.tag));
    return std::move(sent.bytes);
  }

  void complete() {
    std::string list = "<CompleteMultipartUpload>";
    for (std::size_t i = 0; i < tags_.size(); ++i)
      list +=
          "<Part><PartNumber>" + std::to_string(i + 1) + "</PartNumber><ETag>" + escaped(tags_[i]) + "</ETag></Part>";
    list += "</CompleteMultipartUpload>";
    const s3_request request{.method = "POST",
                             .key = key_,
                             .query = {{"uploadId", id_}},
                             .headers = {{"Content-Type", "application/xml"}},
                             .body = std::as_bytes(std::span(list)),
                             .also = {404}};
    // It may say no behind a status that says yes, after it kept us waiting for long.
    for (unsigned attempt = 1;; ++attempt) {
      const auto answer = client_->ask(request);
      if (answer.status == 200 && !is_refusal(answer.body))
        return;
      if (is_complete()) // an attempt before was heard, but not its answer
        return;
      const auto why = read_refusal(answer.body);
      if (answer.status != 200 || attempt >= client_->options().pace.attempts)
        throw store_error(store_trouble::unreachable, "s3://" + client_->site().bucket + "/" + key_ +
                                                          ": the upload was not completed: " + why.code + " " +
                                                          why.message);
    }
  }

  bool is_complete() {
    const auto answer = client_->ask({.method = "HEAD", .key = key_, .also = {404}});
    return answer.status == 200 && answer.header("Content-Length") == std::to_string(written_);
  }

  static std::string escaped(const std::string& x) {
    std::string result;
    for (const char c : x)
      if (c == '"')
        result += "&quot;";
      else if (c != '<' && c != '>' && c != '&')
        result += c;
    return result;
  }

  const std::shared_ptr<s3_client> client_;
  const std::string key_;
  const std::uint64_t bytes_; ///< there are to be
  const std::uint64_t part_bytes_;
  std::uint64_t written_ = 0;
  std::vector<std::byte> part_; ///< that is filled
  std::string id_;              ///< of the multipart upload; empty: it is none yet
  unsigned parts_ = 0;          ///< sent, or on their way
  std::vector<std::string> tags_;
  bool published_ = false;
  std::stop_source stop_; ///< of the threads
  std::deque<std::future<sent_part>> on_their_way_;
};

} // namespace

std::unique_ptr<object_writer> begin_upload(std::shared_ptr<s3_client> client, const std::string& key,
                                            std::uint64_t bytes) {
  return std::make_unique<upload>(std::move(client), key, bytes);
}

void give_up_uploads(s3_client& client, const std::string& prefix,
                     const std::function<bool(std::string_view name)>& ours) {
  s3_request request{.query = {{"uploads", ""}, {"prefix", prefix}}};
  for (int page = 0; page < max_pages; ++page) {
    const auto list = read_unfinished(client.ask(request).body);
    if (!list)
      throw store_error(store_trouble::unreachable, "s3://" + client.site().bucket + ": " + list.error());
    for (const auto& x : list->uploads)
      if (x.key.starts_with(prefix) && ours(std::string_view(x.key).substr(x.key.rfind('/') + 1)))
        client.ask({.method = "DELETE", .key = x.key, .query = {{"uploadId", x.upload}}, .also = {404}});
    if (list->next_key.empty())
      return;
    request.query = {
        {"uploads", ""}, {"prefix", prefix}, {"key-marker", list->next_key}, {"upload-id-marker", list->next_upload}};
  }
}

} // namespace parcae
