#pragma once

// A gateway's executor in virtual time: remembers who serves, as it was told, and says so each second. It has no
// requests.

#include "gpu/executor/executor.hpp"
#include "tests/simulation/simulated_worker.hpp"

#include <functional>
#include <memory>
#include <optional>

namespace parcae::simulation {

class simulated_gateway final : public executor_of<gateway_command> {
public:
  simulated_gateway(const executor_surroundings& around, process_ptr p, const slot_id& slot,
                    std::function<void(report)> report_to);
  ~simulated_gateway() override;

  void want_snapshot() override {}

  /// Null: it was told nothing, or the job is over.
  const route* goes_by() const { return told_ ? &*told_ : nullptr; }

private:
  void obey(gateway_command x) override;
  void say();

  executor_surroundings around_;
  process_ptr process_;
  const slot_id slot_;
  std::function<void(report)> report_to_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  std::optional<route> told_;
  std::uint64_t telling_ = 0; ///< the newest of what says it each second
};

} // namespace parcae::simulation
