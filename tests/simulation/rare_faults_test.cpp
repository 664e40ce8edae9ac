// Faults that thousands of schedules take to be found.

#include "tests/simulation/faulty_simulation.hpp"

namespace parcae::simulation {
namespace {

// given: a fault that few schedules show / expected: it is found
TEST_P(faulty_simulation, is_found_out_late) {
  EXPECT_LE(first_to_find(GetParam()), GetParam().seeds);
}

INSTANTIATE_TEST_SUITE_P(each, faulty_simulation, testing::ValuesIn(faults_that_are(true)),
                         [](const auto& x) { return std::string(x.param.name); });

} // namespace
} // namespace parcae::simulation
