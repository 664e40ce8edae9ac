#pragma once

// Messages between actors of the manager's process; they have no wire form (interfaces.hpp names their uses).

#include "actors/conductor/conductor.hpp"
#include "planner/market/budget_check.hpp"
#include "planner/market/renting.hpp"
#include "protocols/client/client.hpp"
#include "protocols/wire/type_ids.hpp"

#include <caf/allowed_unsafe_message_type.hpp>
#include <caf/node_id.hpp>

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace parcae {

/// The sender of a message from elsewhere, as its certificate says; the defaults are for a cluster without any.
struct requester {
  std::string name{};   ///< owner of what it submits
  std::string holder{}; ///< of the certificate, also of one made anew: uri_of(); empty: there are none
  bool may_all = true;  ///< also with what is others'
  caf::node_id node{};  ///< its process; none: this one, or nobody who could be told
};

/// A slot that a job may use.
struct slot_offer {
  participant where;
  bool keeper = false;
  std::string processor; ///< as in HELLO
  slot_memory memory;    ///< as in HELLO
  machine_facts machine; ///< as in HELLO
  slot_actor handle;
  std::optional<std::string> gateway{}; ///< it is one, and answers there
  std::string kind{};                   ///< of instance; empty: all are alike
};

/// Something for the conductor.
struct job_event {
  conductor_event what;
};

/// One line of a job's journal or log.
struct logged_event {
  time_point at;
  severity level = severity::information;
  std::string text;
};

/// What `status` shows of a job. Immutable once made, so that it can be shared between actors.
struct job_picture {
  std::shared_ptr<const job_view> view;
  std::uint64_t first_event = 0; ///< number of events.front(); older ones were dropped
  std::shared_ptr<const std::deque<logged_event>> events;
};

/// A record of losses as the journal has it.
struct journaled_losses {
  loss_record all{};
  std::vector<std::uint64_t> pieces{}; ///< where its values begin
};

/// What the journal has of a job that goes on; empty: it begins.
struct known_job {
  durable_state durable;
  job_past past;
  journaled_losses losses{};
  std::uint64_t first_event = 0; ///< as in job_picture
  std::deque<logged_event> events;
};

/// How a job ended, with its last picture.
struct job_outcome {
  job_id job;
  bool good = false;
  std::string why; ///< for people, if not good
  job_picture last;
};

/// A worker joined, was given notice, or is lost.
struct fleet_news {
  fleet_event what;      ///< seconds: of the manager's clock
  std::string processor; ///< as in HELLO
};

/// Seconds of a time point, as fleet_event has them.
inline double seconds_of(time_point x) {
  return std::chrono::duration<double>(x.time_since_epoch()).count();
}

/// The next intervals, as many as the job looks ahead.
struct forecast_query {};

struct forecast_answer {
  std::shared_ptr<const fleet_forecast> what;
};

/// A living instance that may be preempted.
struct preempt_target {
  std::string name;
  incarnation life;
  bool worker = true; ///< keepers are only preempted by name
  bool leaving = false;
  instance_actor handle;
};

struct preempt_order {
  preempt_request what;
  std::vector<preempt_target> living; ///< sorted by name
};

struct preempt_outcome {
  std::vector<std::string> names;
};

/// What is there to be paid for, and the job that it is for. From the registry.
struct market_question {};

struct rented_worker {
  std::string name, pool;
  time_point joined;
  instance_ages ages; ///< then, as it says
  std::uint32_t slots = 0;
  bool leaving = false;
  time_point ended{}; ///< of one that lives no more
};

/// It runs, or is the first that waits.
struct rented_for {
  job_id id;
  job_specification specification;
  std::int64_t submitted_ms = 0; ///< by the wall
  job_picture picture;           ///< empty: it waits
};

struct market_facts {
  std::vector<rented_worker> workers; ///< that live
  std::vector<rented_worker> gone;    ///< since the last answer; told once
  std::shared_ptr<const rented_for> job;
};

/// Whether a job that is submitted now could keep its budget.
struct budget_question {
  std::shared_ptr<const job_specification> job;
};

struct budget_answer {
  market::budget_words words;
};

/// Workers that are needed no more: they are given notice, and end. Those that were given one so before: a shorter one.
struct give_back {
  std::vector<std::string> names;
  std::uint64_t notice_ms = 0; ///< at the latest: each is released when nothing of it is needed any more
};

/// Instances of pools that may train: those of one place. Level-triggered.
struct train_with {
  std::set<std::string> pools;
};

/// What `status` shows of the market.
struct market_picture {
  std::shared_ptr<const market_status> what;
};

/// The job is to end, if it still runs; why, for people.
struct stop_job {
  job_id job;
  std::string why;
};

/// What the feed says now.
struct feed_news {
  std::vector<pool_quote> quotes;
  std::string problem; ///< one line; empty: none
};

/// What the hook answered.
struct hook_news {
  std::vector<pool_word> words;
  std::string problem;       ///< why it did not, one line; empty: it did
  std::uint64_t request = 0; ///< which it answered
};

/// One value of the journal.
struct journal_entry {
  std::string name;
  std::vector<char> bytes; ///< empty: the value goes; if the name ends with '/', all whose names begin with it
};

/// Values to be written together.
struct journal_entries {
  std::vector<journal_entry> all;
  bool may_fail = false; ///< nothing depends on it
};

} // namespace parcae

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(parcae::requester)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(parcae::slot_offer)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(parcae::job_event)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(parcae::job_outcome)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(parcae::job_picture)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(parcae::fleet_news)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(parcae::trace_request)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(parcae::trace_reply)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(parcae::forecast_query)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(parcae::forecast_answer)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(parcae::request_plan)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(parcae::plan_chosen)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(parcae::preempt_order)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(parcae::preempt_outcome)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(parcae::market_question)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(parcae::market_facts)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(parcae::budget_question)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(parcae::budget_answer)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(parcae::give_back)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(parcae::train_with)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(parcae::market_picture)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(parcae::stop_job)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(parcae::feed_news)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(parcae::hook_news)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(parcae::journal_entries)
