#include "protocols/client/client.hpp"

#include "protocols/client/status_values.hpp"

namespace parcae {

namespace {

template <class... Ts>
struct overloaded : Ts... {
  using Ts::operator()...;
};

template <class Request>
void put_submission(schema::Submission::Builder to, const Request& x) {
  put(to.initJob(), x.job);
  to.setPriority(x.priority);
}

} // namespace

std::vector<char> encode(const request& x) {
  capnp::MallocMessageBuilder message;
  auto to = message.initRoot<schema::Request>();
  std::visit(overloaded{[&](const submit_request& r) { put_submission(to.initEnqueue(), r); },
                        [&](const check_request& r) { put_submission(to.initCheck(), r); },
                        [&](const status_request& r) {
                          auto s = to.initStatus();
                          s.setJob(r.job);
                          s.setChangesFrom(r.changes_from);
                          s.setEventsFrom(r.events_from);
                          s.setDecisionsFrom(r.decisions_from);
                          s.setLossesFrom(r.losses_from);
                          s.setNewsFrom(r.news_from);
                          s.setFailuresFrom(r.failures_from);
                        },
                        [&](const preempt_request& r) {
                          auto p = to.initPreempt();
                          put_texts(p.initNames(r.names.size()), r.names);
                          p.setAny(r.any);
                          p.setSeed(r.seed);
                          p.setNoticeMs(r.notice_ms);
                        },
                        [&](const cancel_request& r) { to.setCancel(r.job); },
                        [&](const checkpoint_request& r) { to.setCheckpoint(r.job); },
                        [&](const report_request& r) {
                          auto p = to.initReport();
                          p.setInstance(r.instance);
                          p.setWhat(r.what);
                          put_texts(p.initLines(r.lines.size()), r.lines);
                          p.setJob(r.job);
                        }},
             x);
  return bytes_of(message);
}

std::vector<char> encode(const reply& x) {
  capnp::MallocMessageBuilder message;
  auto to = message.initRoot<schema::Reply>();
  std::visit(overloaded{[&](const error_reply& r) {
                          auto e = to.initError();
                          e.setCode(r.code);
                          e.setText(r.text);
                        },
                        [&](const submitted_reply& r) {
                          to.setSubmitted(r.job);
                          to.setManagerLife(r.manager_life);
                        },
                        [&](const status_reply& r) {
                          auto s = to.initStatus();
                          to.setManagerLife(r.manager_life);
                          s.setNowUs(r.now_us);
                          put_all(s.initInstances(r.instances.size()), r.instances);
                          put_all(s.initJobs(r.jobs.size()), r.jobs);
                          s.setNewsCount(r.news_count);
                          put_all(s.initNews(r.news.size()), r.news);
                          s.setFailureCount(r.failure_count);
                          put_all(s.initFailures(r.failures.size()), r.failures);
                        },
                        [&](const preempted_reply& r) { put_texts(to.initPreempted(r.names.size()), r.names); },
                        [&](const cancelled_reply& r) { to.setCancelled(r.job); },
                        [&](const checkpointing_reply& r) { to.setCheckpointing(r.job); },
                        [&](const reported_reply&) { to.setReported(); },
                        [&](const checked_reply& r) {
                          auto c = to.initChecked();
                          c.setObstacle(r.obstacle);
                          put_texts(c.initBefore(r.before.size()), r.before);
                        }},
             x);
  return bytes_of(message);
}

request decode_request(std::span<const char> bytes) {
  return decoded<schema::Request>(
      bytes, client_message_limit_bytes, "client request", [](schema::Request::Reader from) -> request {
        switch (from.which()) {
        case schema::Request::SUBMIT:
          return submit_request{get(from.getSubmit()), 0};
        case schema::Request::ENQUEUE:
          return submit_request{get(from.getEnqueue().getJob()), from.getEnqueue().getPriority()};
        case schema::Request::CHECK:
          return check_request{get(from.getCheck().getJob()), from.getCheck().getPriority()};
        case schema::Request::STATUS: {
          auto s = from.getStatus();
          return status_request{s.getJob(),        s.getChangesFrom(), s.getEventsFrom(),  s.getDecisionsFrom(),
                                s.getLossesFrom(), s.getNewsFrom(),    s.getFailuresFrom()};
        }
        case schema::Request::PREEMPT: {
          auto p = from.getPreempt();
          return preempt_request{get_texts(p.getNames()), p.getAny(), p.getSeed(), p.getNoticeMs()};
        }
        case schema::Request::CANCEL:
          return cancel_request{from.getCancel()};
        case schema::Request::CHECKPOINT:
          return checkpoint_request{from.getCheckpoint()};
        case schema::Request::REPORT: {
          auto p = from.getReport();
          return report_request{p.getInstance().cStr(), p.getWhat().cStr(), get_texts(p.getLines()), p.getJob()};
        }
        }
        throw std::runtime_error("client request is of a kind this manager does not know");
      });
}

reply decode_reply(std::span<const char> bytes) {
  return decoded<schema::Reply>(
      bytes, client_message_limit_bytes, "manager's reply", [](schema::Reply::Reader from) -> reply {
        switch (from.which()) {
        case schema::Reply::ERROR:
          return error_reply{from.getError().getCode().cStr(), from.getError().getText().cStr()};
        case schema::Reply::SUBMITTED:
          return submitted_reply{from.getSubmitted(), from.getManagerLife()};
        case schema::Reply::STATUS: {
          auto s = from.getStatus();
          return status_reply{.now_us = s.getNowUs(),
                              .instances = get_all<instance_status>(s.getInstances()),
                              .jobs = get_all<job_status>(s.getJobs()),
                              .news_count = s.getNewsCount(),
                              .news = get_all<event_status>(s.getNews()),
                              .failure_count = s.getFailureCount(),
                              .failures = get_all<failure_status>(s.getFailures()),
                              .manager_life = from.getManagerLife()};
        }
        case schema::Reply::PREEMPTED:
          return preempted_reply{get_texts(from.getPreempted())};
        case schema::Reply::CANCELLED:
          return cancelled_reply{from.getCancelled()};
        case schema::Reply::CHECKPOINTING:
          return checkpointing_reply{from.getCheckpointing()};
        case schema::Reply::REPORTED:
          return reported_reply{};
        case schema::Reply::CHECKED:
          return checked_reply{from.getChecked().getObstacle().cStr(), get_texts(from.getChecked().getBefore())};
        }
        throw std::runtime_error("manager's reply is of a kind this client does not know");
      });
}

} // namespace parcae
