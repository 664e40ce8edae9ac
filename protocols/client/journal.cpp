#include "protocols/client/journal.hpp"

#include "protocols/client/journal.capnp.h"
#include "protocols/client/stored_values.hpp"

namespace parcae {

namespace {

template <class Schema, class T>
std::vector<char> bytes_in(const T& x) {
  capnp::MallocMessageBuilder message;
  put(message.initRoot<Schema>(), x);
  return bytes_of(message);
}

template <class Schema, class T>
T value_in(std::span<const char> bytes) {
  return decoded<Schema>(bytes, journal_limit_bytes, "a value of the journal",
                         [](typename Schema::Reader from) { return get<T>(from); });
}

} // namespace

std::vector<char> encode(const durable_state& x) {
  return bytes_in<schema::JobMemory>(x);
}

std::vector<char> encode(const job_record& x) {
  return bytes_in<schema::JobRecord>(x);
}

std::vector<char> encode(const cluster_record& x) {
  return bytes_in<schema::ClusterIdentity>(x);
}

std::vector<char> encode(const ledger_record& x) {
  return bytes_in<schema::Ledger>(x);
}

template <>
durable_state decode_journal(std::span<const char> bytes) {
  auto x = value_in<schema::JobMemory, durable_state>(bytes);
  const auto& grid = x.grid;
  const bool fits = grid.participants.size() >= std::uint64_t{grid.width} * grid.depth &&
                    (grid.width == 0 || grid.first_layer.size() == std::uint64_t{grid.depth} + 1);
  if (!fits || (grid.width > 0) != (grid.depth > 0) || (grid.width > 0) != (x.last != generation{}))
    throw std::runtime_error("a value of the journal has a placement that is none");
  return x;
}

template <>
job_record decode_journal(std::span<const char> bytes) {
  return value_in<schema::JobRecord, job_record>(bytes);
}

template <>
cluster_record decode_journal(std::span<const char> bytes) {
  return value_in<schema::ClusterIdentity, cluster_record>(bytes);
}

template <>
ledger_record decode_journal(std::span<const char> bytes) {
  return value_in<schema::Ledger, ledger_record>(bytes);
}

} // namespace parcae
