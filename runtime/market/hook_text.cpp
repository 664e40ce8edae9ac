#include "runtime/market/hook_text.hpp"

#include "protocols/base/printable.hpp"

#include <boost/json.hpp>

#include <algorithm>
#include <map>

namespace parcae {

namespace {

namespace json = boost::json;

constexpr std::int64_t max_given = 100'000;
constexpr std::size_t max_why = 200;
constexpr std::size_t max_depth = 8;

json::array names(const std::vector<std::string>& x) {
  json::array result;
  for (const auto& name : x)
    result.emplace_back(name);
  return result;
}

/// What the hook says of a pool, or a sentence's end that says what is wrong with it.
tl::expected<pool_word, std::string> answer_of(const json::value& x) {
  const auto* fields = x.if_object();
  const auto* name = fields ? fields->if_contains("name") : nullptr;
  if (!name || !name->is_string())
    return tl::unexpected(std::string("each of its pools must be an object with a name"));
  const auto of = " of the pool " + printable(name->as_string(), 60);
  pool_word result{std::string(name->as_string()), {}, {}};
  const auto* can = fields->if_contains("can");
  if (!can || !can->is_int64() || can->as_int64() < -1 || can->as_int64() > max_given)
    return tl::unexpected("can" + of + " must be a whole number from -1 to " + std::to_string(max_given));
  if (can->as_int64() >= 0)
    result.can = static_cast<std::uint32_t>(can->as_int64());
  if (const auto* why = fields->if_contains("why"); why && !why->is_null()) {
    if (!why->is_string())
      return tl::unexpected("why" + of + " must be a string");
    result.why = printable(why->as_string(), max_why);
  }
  return result;
}

} // namespace

std::string hook_request(const provision_request& x, const std::string& manager) {
  json::array pools;
  for (const auto& pool : x.pools)
    pools.push_back({{"name", pool.name},
                     {"kind", pool.kind},
                     {"place", pool.place},
                     {"want", pool.want},
                     {"have", names(pool.have)},
                     {"release", names(pool.release)}});
  return json::serialize(
      json::object{{"version", 1}, {"request", x.request}, {"manager", manager}, {"pools", std::move(pools)}});
}

tl::expected<std::vector<pool_word>, std::string> hook_answer(std::string_view text, const provision_request& asked) {
  if (text.size() > max_hook_answer)
    return tl::unexpected("its answer has more than " + std::to_string(max_hook_answer) + " bytes");
  boost::system::error_code error;
  json::parse_options limits;
  limits.max_depth = max_depth;
  const auto all = json::parse(text, error, {}, limits);
  if (error)
    return tl::unexpected("its answer is no JSON: \"" + printable(text, 60) + "\"");
  const auto* top = all.if_object();
  const auto* pools = top ? top->if_contains("pools") : nullptr;
  if (!pools || !pools->is_array())
    return tl::unexpected(std::string(R"(its answer must be {"pools":[{"name":…,"can":…,"why":…}]})"));
  std::map<std::string_view, pool_word> said;
  for (const auto& x : asked.pools)
    said[x.name].pool = x.name;
  std::map<std::string_view, int> times;
  for (const auto& x : pools->as_array()) {
    auto one = answer_of(x);
    if (!one)
      return tl::unexpected("its answer is wrong: " + one.error());
    const auto of = said.find(one->pool);
    if (of == said.end())
      continue;
    if (++times[of->first] > 1)
      return tl::unexpected("its answer is wrong: it has the pool " + printable(one->pool, 60) + " twice");
    of->second = std::move(*one);
  }
  std::vector<pool_word> result;
  for (const auto& x : asked.pools)
    result.push_back(said.at(x.name));
  return result;
}

} // namespace parcae
