#include "tests/simulation/simulated_gateway.hpp"

#include <utility>

namespace parcae::simulation {

simulated_gateway::simulated_gateway(const executor_surroundings& around, process_ptr p, const slot_id& slot,
                                     std::function<void(report)> report_to) :
    around_(around),
    process_(std::move(p)), slot_(slot), report_to_(std::move(report_to)) {}

simulated_gateway::~simulated_gateway() {
  *alive_ = false;
}

void simulated_gateway::obey(gateway_command x) {
  around_.sees.given(slot_, widened<command>(x), around_.time.now());
  if (auto* r = std::get_if<route>(&x)) {
    told_ = std::move(*r);
    say();
  } else {
    told_.reset();
  }
}

void simulated_gateway::say() {
  if (!told_)
    return;
  report_to_(routed{told_->job, told_->current, told_->target.width, {}, {}});
  around_.time.after(process_, 1s, [this, number = ++telling_, alive = alive_] {
    if (*alive && number == telling_)
      say();
  });
}

} // namespace parcae::simulation
