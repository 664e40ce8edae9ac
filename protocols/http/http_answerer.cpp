#include "protocols/http/http_answerer.hpp"

#include <boost/beast/core/string.hpp>

#include <algorithm>

namespace parcae {

std::string_view http_head::header(std::string_view name) const {
  const auto found = std::ranges::find_if(headers, [&](const auto& x) { return boost::beast::iequals(x.first, name); });
  return found == headers.end() ? std::string_view() : std::string_view(found->second);
}

std::size_t http_head::count(std::string_view name) const {
  return static_cast<std::size_t>(
      std::ranges::count_if(headers, [&](const auto& x) { return boost::beast::iequals(x.first, name); }));
}

http_stream::http_stream(boost::asio::any_io_executor executor, std::vector<piece> first, std::size_t max_behind_bytes,
                         std::string sign_of_life) :
    first_(first.begin(), first.end()),
    max_behind_(max_behind_bytes), sign_of_life_(std::make_shared<const std::string>(std::move(sign_of_life))),
    bell_(std::move(executor)) {}

void http_stream::add(piece x) {
  if (ended_ || over_)
    return;
  behind_ += x->size();
  added_.push_back(std::move(x));
  over_ = behind_ > max_behind_;
  if (over_ && cut_off_)
    cut_off_();
  bell_.cancel();
}

void http_stream::end() {
  ended_ = true;
  bell_.cancel();
}

/// The next that is to be sent; null: there is none yet.
http_stream::piece http_stream::next() {
  auto& from = first_.empty() ? added_ : first_;
  if (from.empty())
    return nullptr;
  behind_ -= first_.empty() ? from.front()->size() : 0;
  auto result = std::move(from.front());
  from.pop_front();
  return result;
}

} // namespace parcae
