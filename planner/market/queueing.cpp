#include "planner/market/queueing.hpp"

#include <cmath>
#include <limits>

namespace parcae::market {

double erlang_b(unsigned machines, double offered) {
  double result = 1;
  for (unsigned s = 1; s <= machines; ++s)
    result = offered * result / (s + offered * result);
  return result;
}

double erlang_c(unsigned machines, double offered) {
  if (offered >= machines)
    return 1;
  const double b = erlang_b(machines, offered);
  return b / (1 - offered / machines * (1 - b));
}

team_cost nobody_waits(const team_load& x, unsigned machines) {
  const double b = erlang_b(machines, x.offered());
  return {x.own_usd * machines / x.offered() + b * x.rent_usd, b, 0};
}

team_cost all_wait(const team_load& x, unsigned machines) {
  const double rho = x.offered() / machines;
  const double wait_s = rho < 1 ? erlang_c(machines, x.offered()) * rho / (1 - rho) / x.arrivals_per_s
                                : std::numeric_limits<double>::infinity();
  return {x.own_usd / rho, 0, wait_s};
}

team_cost some_wait(const team_load& x, unsigned machines, double max_s) {
  const double all = machines * x.ends_per_s; // ends a second if all work
  const double delta = all - x.arrivals_per_s;
  if (std::abs(delta) < 1e-9 * all) // the formula has a hole there; on both sides of it it is the same
    return some_wait({x.arrivals_per_s * (1 - 1e-6), x.ends_per_s, x.own_usd, x.rent_usd}, machines, max_s);
  const double b = erlang_b(machines, x.offered());
  const double beta = all * b / (1 - b);
  const double stays = std::exp(-delta * max_s);
  const double alpha = 1 / (1 + beta * (1 / delta - stays * x.arrivals_per_s / (delta * all)));
  const double rents = alpha * beta * stays / all;
  const double wait_s = alpha * beta * (1 - delta * max_s * stays - stays) / (delta * delta) + rents * max_s;
  return {x.own_usd * machines / x.offered() + rents * x.rent_usd, rents, wait_s};
}

unsigned best_machines(const team_load& x, double max_wait_s) {
  unsigned best = 0;
  double least = x.rent_usd;
  const auto most = static_cast<unsigned>(std::ceil(x.offered() + 10 * std::sqrt(x.offered()) + 10));
  for (unsigned s = 1; s <= most; ++s)
    if (const auto cost = max_wait_s > 0 ? some_wait(x, s, max_wait_s) : nobody_waits(x, s); cost.usd_per_h < least) {
      least = cost.usd_per_h;
      best = s;
    }
  return best;
}

} // namespace parcae::market
