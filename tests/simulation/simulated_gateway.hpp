#pragma once

// A gateway's executor in virtual time: carries the product's book of requests and its pipelines, and asks for answers
// by itself. What a token is follows from its request alone. It may say that others come.

#include "gpu/executor/executor.hpp"
#include "gpu/gateway/pipelines.hpp"
#include "tests/simulation/simulated_worker.hpp"

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

namespace parcae::simulation {

class simulated_gateway final : public executor_of<gateway_command> {
public:
  simulated_gateway(const executor_surroundings& around, process_ptr p, const slot_id& slot,
                    std::function<void(report)> report_to);
  ~simulated_gateway() override;

  void want_snapshot() override {}

  /// Null: it was told nothing, or the job is over.
  const route* goes_by() const { return told_ ? &*told_ : nullptr; }
  const pipeline_counts& counts() const { return pipelines_.counts(); }
  /// Requests that are not over.
  std::set<std::uint64_t> open() const;

private:
  /// To a pipeline: passes go round one after the other.
  struct link {
    std::uint64_t connection = 0; ///< of the newest; what is of another one comes no more
    std::deque<pass_frame> frames{};
    bool is_busy = false;
  };
  /// What is to come of a request.
  struct client {
    std::uint64_t seed = 0;
    std::uint32_t next = 0, most = 0; ///< positions
  };

  void obey(gateway_command x) override;
  void follow(route x);
  void say();
  void tick();
  void ask_for_more();
  std::uint64_t now_ms() const;
  /// On its own thread.
  void later(nanoseconds delay, std::function<void()> what);

  void connect(std::uint32_t pipeline);
  void try_to_connect(std::uint32_t pipeline, std::uint64_t connection);
  bool is_of(std::uint32_t pipeline, std::uint64_t connection) const;
  const slot_id& slot_of(std::uint32_t pipeline, std::uint32_t stage) const;
  void run_next(std::uint32_t pipeline);
  void run(std::uint32_t pipeline, std::uint64_t connection, std::uint32_t stage);
  void end_pass(std::uint32_t pipeline, std::uint64_t connection, pass_outcome how);

  void hear_token(std::uint64_t id, std::uint32_t position, std::uint32_t token);
  void hear_end(std::uint64_t id, request_end why);

  executor_surroundings around_;
  process_ptr process_;
  const slot_id slot_;
  std::function<void(report)> report_to_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  std::optional<route> told_;
  std::uint64_t telling_ = 0; ///< the newest of what says it each second
  std::uint64_t connections_ = 0;
  std::map<std::uint64_t, client> clients_;
  std::vector<link> links_; ///< by pipeline
  request_book book_;
  pipelines pipelines_;
};

} // namespace parcae::simulation
