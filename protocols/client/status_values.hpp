#pragma once

// A status in Cap'n Proto. For this folder's sources only.

#include "protocols/client/client.hpp"
#include "protocols/client/stored_values.hpp"

#include <string>
#include <vector>

namespace parcae {

void put(schema::Change::Builder to, const change_status& x);
change_status get(schema::Change::Reader from);
void put(schema::Choice::Builder to, const weighed_choice& x);
weighed_choice get(schema::Choice::Reader from);
void put(schema::Outlook::Builder to, const forecast_outlook& x);
forecast_outlook get(schema::Outlook::Reader from);
void put(schema::Configuration::Builder to, const configuration_status& x);
configuration_status get(schema::Configuration::Reader from);
void put(schema::LayerCost::Builder to, const layer_cost& x);
layer_cost get(schema::LayerCost::Reader from);
void put(schema::Memory::Builder to, const memory_status& x);
memory_status get(schema::Memory::Reader from);
void put(schema::Figures::Builder to, const change_figures& x);
change_figures get(schema::Figures::Reader from);
void put(schema::LossPoint::Builder to, const loss_point& x);
loss_point get(schema::LossPoint::Reader from);
void put(schema::KeeperStatus::Builder to, const keeper_status& x);
keeper_status get(schema::KeeperStatus::Reader from);
void put(schema::ChainLink::Builder to, const chain_link& x);
chain_link get(schema::ChainLink::Reader from);
void put(schema::Decision::Builder to, const decision& x);
decision get(schema::Decision::Reader from);
void put(schema::InstanceStatus::Builder to, const instance_status& x);
instance_status get(schema::InstanceStatus::Reader from);
void put(schema::Event::Builder to, const event_status& x);
event_status get(schema::Event::Reader from);
void put(schema::Failure::Builder to, const failure_status& x);
failure_status get(schema::Failure::Reader from);
void put(schema::JobStatus::Builder to, const job_status& x);
job_status get(schema::JobStatus::Reader from);

template <class Builder, class List>
void put_all(Builder to, const List& from) {
  unsigned i = 0;
  for (const auto& x : from)
    put(to[i++], x);
}

template <class Value, class Reader>
std::vector<Value> get_all(Reader from) {
  std::vector<Value> result;
  result.reserve(from.size());
  for (auto x : from)
    result.push_back(get(x));
  return result;
}

inline void put_texts(capnp::List<capnp::Text>::Builder to, const std::vector<std::string>& from) {
  for (unsigned i = 0; i < from.size(); ++i)
    to.set(i, from[i]);
}

inline std::vector<std::string> get_texts(capnp::List<capnp::Text>::Reader from) {
  std::vector<std::string> result;
  result.reserve(from.size());
  for (auto x : from)
    result.emplace_back(x.cStr());
  return result;
}

} // namespace parcae
