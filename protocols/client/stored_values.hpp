#pragma once

// Cap'n Proto messages as bytes, and values that more than one schema uses. For the sources of this folder only.

#include "protocols/client/client.capnp.h"
#include "protocols/values/job_specification.hpp"

#include <capnp/serialize.h>

#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace parcae {

void put(schema::JobSpecification::Builder to, const job_specification& x);
job_specification get(schema::JobSpecification::Reader from);

inline std::vector<char> bytes_of(capnp::MessageBuilder& message) {
  auto words = capnp::messageToFlatArray(message);
  auto chars = words.asChars();
  return {chars.begin(), chars.end()};
}

/// Reads a message of a schema type and turns every way of being malformed into a std::runtime_error.
template <class Root, class Function>
auto decoded(std::span<const char> bytes, std::size_t limit, const char* what, Function&& function) {
  if (bytes.size() > limit)
    throw std::runtime_error(std::string(what) + " of " + std::to_string(bytes.size()) + " bytes is larger than " +
                             std::to_string(limit));
  if (bytes.empty() || bytes.size() % sizeof(capnp::word) != 0)
    throw std::runtime_error(std::string(what) + " is not a whole number of words");
  try {
    // A copy, because the bytes of an actor message need not be aligned.
    auto words = kj::heapArray<capnp::word>(bytes.size() / sizeof(capnp::word));
    std::memcpy(words.begin(), bytes.data(), bytes.size());
    // Each word may be visited once, plus slack for defaults: pointers that share a target cannot blow a message up.
    capnp::ReaderOptions options{.traversalLimitInWords = words.size() + 1024, .nestingLimit = 16};
    capnp::FlatArrayMessageReader reader(words, options);
    return function(reader.getRoot<Root>());
  } catch (const kj::Exception& e) {
    throw std::runtime_error(std::string(what) + " is malformed: " + e.getDescription().cStr());
  }
}

} // namespace parcae
