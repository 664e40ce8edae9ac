#include "runtime/web/actions.hpp"

#include "protocols/base/locks.hpp"
#include "protocols/wire/errors.hpp"
#include "runtime/cli/checkpoints.hpp"
#include "runtime/job/job_file.hpp"
#include "runtime/process/client.hpp"
#include "runtime/view/status_json.hpp"

#include <boost/json.hpp>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <system_error>

namespace parcae {

namespace {

namespace json = boost::json;

/// What asks the manager: it refuses, or is away.
template <class Function>
auto told_by_manager(Function f) {
  try {
    return f();
  } catch (const refused_request& e) {
    throw web_error(e.code == to_string(parcae_error::unknown_job) ? 404u : 409u, e.what());
  } catch (const client_error& e) {
    throw web_error(503, e.what());
  }
}

/// Asks the manager, on a connection of its own, as a command does.
template <class Function>
auto asked(const manager_option& manager, Function f) {
  return told_by_manager([&] {
    manager_client client(manager.access());
    return f(client);
  });
}

job_specification job_of(const submission& x) {
  try {
    return parse_job(x.json ? toml_of(x.text) : x.text, x.name, x.changes);
  } catch (const job_file_error& e) {
    throw web_error(400, e.what());
  }
}

json::value number(double x) {
  return std::isfinite(x) ? json::value(x) : json::value(nullptr);
}

json::array points_of(const std::vector<loss_point>& all) {
  json::array result;
  for (const auto& x : all)
    result.push_back(json::object{{"steps", x.steps}, {"loss", number(x.loss)}});
  return result;
}

json::array records_of(const loss_block& x, std::uint64_t every) {
  json::array result;
  for (std::size_t i = 0; i < x.all.size(); ++i) {
    const auto& y = x.all[i];
    const auto steps = x.first + i * every + 1;
    if (y.is_known())
      result.push_back(
          json::object{{"steps", steps},
                       {"loss", number(y.loss)},
                       {"validation_loss", y.validation_loss ? number(*y.validation_loss) : json::value(nullptr)},
                       {"gradient_norm", number(y.gradient_norm)},
                       {"learning_rate", number(y.learning_rate)},
                       {"samples", steps * x.samples},
                       {"wall_ms", y.at_ms}});
  }
  return result;
}

/// Answers that are given again for a while: however many ask for one, the manager is asked once meanwhile.
template <class Key, class Answer>
class recent_answers {
public:
  static constexpr std::size_t most = 64; ///< kept: who asks for more is answered anew

  explicit recent_answers(std::chrono::seconds age) : age_(age) {}

  /// `make` may wait, and throw; who asks meanwhile waits, too.
  template <class Function>
  Answer get(const Key& key, Function make) {
    const lock held(mutex_);
    const auto now = std::chrono::steady_clock::now();
    std::erase_if(kept_, [&](const auto& x) { return now - x.second.at > age_; });
    if (const auto i = kept_.find(key); i != kept_.end())
      return i->second.answer;
    auto x = make();
    if (kept_.size() >= most)
      kept_.clear();
    kept_[key] = {std::chrono::steady_clock::now(), x};
    return x;
  }

private:
  struct kept {
    std::chrono::steady_clock::time_point at;
    Answer answer;
  };

  const std::chrono::seconds age_;
  mutex mutex_;
  std::map<Key, kept> kept_ GUARDED_BY(mutex_);
};

class actions_of_manager : public web_actions {
public:
  explicit actions_of_manager(manager_option manager) : manager_(std::move(manager)) {}

  json::value submit(const submission& x) override {
    const auto job = job_of(x);
    return asked(manager_, [&](auto& client) -> json::value {
      return json::object{{"job", client.submit(job, x.priority)}};
    });
  }

  json::value check(const submission& x) override {
    const auto job = job_of(x);
    return asked(manager_, [&](auto& client) -> json::value {
      const auto found = client.check(job, x.priority);
      json::object result;
      for_each_field(found, [&](const char* name, const auto& field) { result[name] = json::value_from(field); });
      return result;
    });
  }

  json::value cancel(std::uint64_t job) override {
    return asked(manager_, [&](auto& client) -> json::value {
      client.cancel(job);
      return json::object{{"job", job}};
    });
  }

  json::value checkpoint(std::uint64_t job) override {
    return asked(manager_, [&](auto& client) -> json::value {
      client.checkpoint(job);
      return json::object{{"job", job}};
    });
  }

  json::value preempt(const preemption& x) override {
    return asked(manager_, [&](auto& client) -> json::value {
      const auto names = client.preempt({x.names, x.any, x.seed, static_cast<std::uint64_t>(x.notice.count())});
      return json::object{{"names", json::value_from(names)}};
    });
  }

  std::string status(std::uint64_t job) override {
    return statuses_.get(
        job, [&] { return json_of(asked(manager_, [&](auto& client) { return client.status({.job = job}); })); });
  }

  std::string curve(std::uint64_t job, std::uint64_t points) override {
    return curves_.get({job, points}, [&] {
      const auto x = asked(manager_, [&](auto& client) { return client.curve(job, points); });
      return json::serialize(json::object{{"every", x.every},
                                          {"records", records_of(x.steps, x.every)},
                                          {"validation_losses", points_of(x.validation_losses)}});
    });
  }

  std::string losses(std::uint64_t job, std::uint64_t from) override {
    const auto x = asked(manager_, [&](auto& client) { return client.losses(job, from); });
    return json::serialize(json::object{{"next", x.end()}, {"records", records_of(x, 1)}});
  }

  std::string checkpoints() override { return json_of(list_checkpoints(manager_)); }

  std::shared_ptr<const web_file> parameters(std::uint64_t job, bool asks) override {
    auto name = (std::filesystem::temp_directory_path() / "parcae-web-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr)
      throw web_error(500, "no folder can be made in " + std::filesystem::temp_directory_path().string());
    const std::filesystem::path folder = name;
    const auto clean_up = [&] {
      std::error_code stays;
      std::filesystem::remove_all(folder, stays);
    };
    try {
      told_by_manager([&] { export_newest(manager_, job, folder / "parameters", asks); });
      auto result = std::make_shared<const web_file>(folder / "parameters");
      clean_up();
      return result;
    } catch (const web_error&) {
      clean_up();
      throw;
    } catch (const std::exception& e) { // no version, or none that is seen from here; no space
      clean_up();
      throw web_error(409, e.what());
    }
  }

private:
  const manager_option manager_;
  recent_answers<std::uint64_t, std::string> statuses_{std::chrono::seconds(1)};                         // by job
  recent_answers<std::pair<std::uint64_t, std::uint64_t>, std::string> curves_{std::chrono::seconds(5)}; // and points
};

} // namespace

std::unique_ptr<web_actions> make_web_actions(const manager_option& manager) {
  return std::make_unique<actions_of_manager>(manager);
}

} // namespace parcae
