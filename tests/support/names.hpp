#pragma once

// The short names of what nearly every test writes: GoogleTest's matchers, and units of time.

#include <gmock/gmock.h>

#include <chrono>

namespace parcae {

using namespace std::chrono_literals;

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;
using ::testing::SizeIs;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

} // namespace parcae
