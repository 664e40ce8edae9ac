#pragma once

// A gateway's executor: requests come in here, tokens go out.

#include "gpu/executor/executor.hpp"
#include "gpu/gateway/request_book.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace parcae {

class data_port;

/// Who hears of a request. Called with the gateway's lock held: it may not call the gateway, and must be quick.
class request_listener {
public:
  virtual ~request_listener() = default;
  virtual void on_token(std::uint32_t token) = 0;
  virtual void on_end(request_end why) = 0; ///< the last call
};

/// All methods are for any thread, and do not block.
class gateway : public executor_of<gateway_command> {
public:
  /// Of the job that is served, whether or not there are pipelines now; null: none is.
  virtual std::shared_ptr<const job_specification> job() const = 0;
  /// There is a pipeline that takes requests.
  virtual bool serves() const = 0;

  /// Its number, or 0: the queue is full, or nothing is served. The wish was checked against the job: tokens are below
  /// its vocabulary, prompt and answer within its context.
  virtual std::uint64_t begin(request_wish x, std::shared_ptr<request_listener> tells) = 0;
  /// Whether it has no place for another request: the queue is full. If so, one more counts as refused. Waits for no
  /// lock, so it may be asked before a request is looked at; begin() has the last word.
  virtual bool turns_away() = 0;
  /// Nobody wants it any more; nothing more is told of it.
  virtual void cancel(std::uint64_t id) = 0;
  /// How many are not over.
  virtual std::size_t requests() const = 0;

  /// Why it answers nobody, for the manager; empty: it does.
  virtual void note_problem(std::string line) = 0;
};

/// `port` outlives it. Of the options it takes where it is and whom it reports to.
std::unique_ptr<gateway> make_gateway(executor_options options, data_port& port);

} // namespace parcae
