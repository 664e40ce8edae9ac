#include "protocols/client/client.hpp"

#include "protocols/client/client.capnp.h"
#include "protocols/client/stored_values.hpp"

namespace parcae {

namespace {

template <class... Ts>
struct overloaded : Ts... {
  using Ts::operator()...;
};
template <class... Ts>
overloaded(Ts...) -> overloaded<Ts...>; // clang 14 does not deduce it

request request_in(schema::Request::Reader from) {
  switch (from.which()) {
  case schema::Request::SUBMIT:
    return submit_request{get<job_specification>(from.getSubmit()), 0};
  case schema::Request::ENQUEUE:
    return get<submit_request>(from.getEnqueue());
  case schema::Request::CHECK:
    return get<check_request>(from.getCheck());
  case schema::Request::STATUS:
    return get<status_request>(from.getStatus());
  case schema::Request::PREEMPT:
    return get<preempt_request>(from.getPreempt());
  case schema::Request::CANCEL:
    return cancel_request{from.getCancel()};
  case schema::Request::CHECKPOINT:
    return checkpoint_request{from.getCheckpoint()};
  case schema::Request::LOSSES:
    return get<losses_request>(from.getLosses());
  case schema::Request::REPORT:
    return get<report_request>(from.getReport());
  case schema::Request::TRACE:
    return get<trace_request>(from.getTrace());
  }
  throw std::runtime_error("client request is of a kind this manager does not know");
}

reply reply_in(schema::Reply::Reader from) {
  switch (from.which()) {
  case schema::Reply::ERROR:
    return get<error_reply>(from.getError());
  case schema::Reply::SUBMITTED:
    return submitted_reply{from.getSubmitted(), from.getManagerLife()};
  case schema::Reply::STATUS: {
    auto result = get<status_reply>(from.getStatus());
    result.manager_life = from.getManagerLife();
    result.more = from.getMore();
    return result;
  }
  case schema::Reply::PREEMPTED: {
    preempted_reply result;
    get_value(from.getPreempted(), result.names);
    return result;
  }
  case schema::Reply::CANCELLED:
    return cancelled_reply{from.getCancelled()};
  case schema::Reply::CHECKPOINTING:
    return checkpointing_reply{from.getCheckpointing()};
  case schema::Reply::REPORTED:
    return reported_reply{};
  case schema::Reply::LOSSES: {
    const auto losses = from.getLosses();
    const auto block = losses.getBlock().asChars();
    losses_reply result{losses.getEvery(), {block.begin(), block.end()}};
    get_value(losses.getValidationLosses(), result.validation_losses);
    return result;
  }
  case schema::Reply::CHECKED:
    return get<checked_reply>(from.getChecked());
  case schema::Reply::TRACE:
    return get<trace_reply>(from.getTrace());
  }
  throw std::runtime_error("manager's reply is of a kind this client does not know");
}

} // namespace

std::vector<char> encode(const request& x) {
  capnp::MallocMessageBuilder message;
  auto to = message.initRoot<schema::Request>();
  std::visit(overloaded{[&](const submit_request& r) { put(to.initEnqueue(), r); },
                        [&](const check_request& r) { put(to.initCheck(), r); },
                        [&](const status_request& r) { put(to.initStatus(), r); },
                        [&](const preempt_request& r) { put(to.initPreempt(), r); },
                        [&](const cancel_request& r) { to.setCancel(r.job); },
                        [&](const checkpoint_request& r) { to.setCheckpoint(r.job); },
                        [&](const report_request& r) { put(to.initReport(), r); },
                        [&](const trace_request& r) { put(to.initTrace(), r); },
                        [&](const losses_request& r) { put(to.initLosses(), r); }},
             x);
  return bytes_of(message);
}

std::vector<char> encode(const reply& x) {
  capnp::MallocMessageBuilder message;
  auto to = message.initRoot<schema::Reply>();
  std::visit(overloaded{[&](const error_reply& r) { put(to.initError(), r); },
                        [&](const submitted_reply& r) {
                          to.setSubmitted(r.job);
                          to.setManagerLife(r.manager_life);
                        },
                        [&](const status_reply& r) {
                          put(to.initStatus(), r);
                          to.setManagerLife(r.manager_life);
                          to.setMore(r.more);
                        },
                        [&](const preempted_reply& r) {
                          put_all(to.initPreempted(static_cast<unsigned>(r.names.size())), r.names);
                        },
                        [&](const cancelled_reply& r) { to.setCancelled(r.job); },
                        [&](const checkpointing_reply& r) { to.setCheckpointing(r.job); },
                        [&](const reported_reply&) { to.setReported(); },
                        [&](const losses_reply& r) {
                          auto losses = to.initLosses();
                          losses.setEvery(r.every);
                          const std::span<const char> block(r.block);
                          losses.setBlock(kj::arrayPtr(reinterpret_cast<const kj::byte*>(block.data()), block.size()));
                          const auto& evaluated = r.validation_losses;
                          put_all(losses.initValidationLosses(static_cast<unsigned>(evaluated.size())), evaluated);
                        },
                        [&](const checked_reply& r) { put(to.initChecked(), r); },
                        [&](const trace_reply& r) { put(to.initTrace(), r); }},
             x);
  return bytes_of(message);
}

request decode_request(std::span<const char> bytes) {
  return decoded<schema::Request>(bytes, client_message_limit_bytes, "client request", request_in);
}

reply decode_reply(std::span<const char> bytes) {
  return decoded<schema::Reply>(bytes, client_message_limit_bytes, "manager's reply", reply_in);
}

} // namespace parcae
