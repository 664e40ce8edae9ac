#pragma once

// Machines of a team, rented by the hour or kept: Erlang's formulas, and what a machine-hour of work costs with them.
// "The Waiting Game" (SC'23; public code sustainablecomputinglab/waitinggame). Pure.

namespace parcae::market {

/// Jobs that come at random and take a random time each, for machines of one's own.
struct team_load {
  double arrivals_per_s = 0;
  double ends_per_s = 0; ///< of a machine at work
  double own_usd = 0;    ///< a machine for an hour, whether it works or not
  double rent_usd = 0;

  double offered() const { return arrivals_per_s / ends_per_s; } ///< machines at work if there are enough
};

struct team_cost {
  double usd_per_h = 0; ///< of a machine-hour of work
  double rented = 0;    ///< share of the jobs that rent
  double wait_s = 0;    ///< mean
};

/// Probability that all are at work when nobody waits (B), and when all wait (C; 1 if the load is too much).
double erlang_b(unsigned machines, double offered);
double erlang_c(unsigned machines, double offered);

/// Who finds no machine free rents one.
team_cost nobody_waits(const team_load& x, unsigned machines);

/// All wait; infinite if the load is too much.
team_cost all_wait(const team_load& x, unsigned machines);

/// All wait, but not those who would for longer than `max_s`: they rent.
team_cost some_wait(const team_load& x, unsigned machines, double max_s);

/// Number of machines with least cost where nobody waits longer; 0: to rent all is cheapest.
unsigned best_machines(const team_load& x, double max_wait_s = 0);

} // namespace parcae::market
