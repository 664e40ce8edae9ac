#include "tests/simulation/faults.hpp"

#include <algorithm>
#include <array>
#include <memory>

// Rows of a gateway's tables made wrong, one a fault.

namespace parcae {

struct gateway_faults {
  using book_rows = std::vector<request_book::row>;
  using pipeline_rows = std::vector<pipelines::row>;

  template <class Row, class Trigger>
  static Row& at(std::vector<Row>& rows, Trigger on, std::string_view condition) {
    return *std::ranges::find_if(rows, [&](const Row& x) { return x.on == on && x.condition == condition; });
  }

  static void token_twice(book_rows& book, pipeline_rows&) {
    at(book, request_trigger::token, "").act = [](request_book& b, const auto& x) {
      for (std::uint32_t i = 0; i < 2; ++i) {
        x.of.tokens.push_back(x.token);
        b.tells_.on_token(x.of.id, x.position + i, x.token);
      }
    };
  }

  static void position_ahead(book_rows&, pipeline_rows& all) {
    static const auto begins = at(all, pipeline_trigger::held, "").act;
    at(all, pipeline_trigger::held, "").act = [](pipelines& p, const auto& x) {
      auto more = *x.answer;
      for (auto& row : more.tokens)
        ++row.position;
      auto ahead = x;
      ahead.answer = &more;
      begins(p, ahead);
    };
  }

  static void request_forgotten(book_rows& book, pipeline_rows&) { at(book, request_trigger::lost, "").to.reset(); }

  /// The machines run with these rows from now on.
  static std::function<void(request_book&, pipelines&)> with(void (*spoil)(book_rows&, pipeline_rows&)) {
    const auto book = std::make_shared<book_rows>(request_book::rows);
    const auto all = std::make_shared<pipeline_rows>(pipelines::rows);
    spoil(*book, *all);
    return [book, all](request_book& b, pipelines& p) {
      b.rules_ = book.get();
      p.rules_ = all.get();
    };
  }
};

namespace simulation {

std::function<void(request_book&, pipelines&)> gateway_spoiler_of(fault what) {
  using all = gateway_faults;
  switch (what) {
  case fault::token_twice:
    return all::with(all::token_twice);
  case fault::position_ahead:
    return all::with(all::position_ahead);
  case fault::request_forgotten:
    return all::with(all::request_forgotten);
  default:
    return {};
  }
}

std::span<const named_fault> all_service_faults() {
  static constexpr std::array all{
      named_fault{"token_twice", fault::token_twice, 2, "is told another token"},
      named_fault{"position_ahead", fault::position_ahead, 2, "is to compute position"},
      named_fault{"early_release", fault::early_release, 2, "shards are released"},
      named_fault{"request_forgotten", fault::request_forgotten, 12, "gets no more tokens"},
      named_fault{"caches_lie", fault::caches_lie, 2, "is to compute position"},
  };
  return all;
}

} // namespace simulation

} // namespace parcae
