#include "runtime/node/faults.hpp"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <charconv>
#include <csignal>
#include <stdexcept>

namespace parcae {

namespace {

template <class Number>
Number parse_number(std::string_view text, std::string_view whole) {
  Number x = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), x);
  if (error != std::errc{} || end != text.data() + text.size())
    throw std::invalid_argument("fault \"" + std::string(whole) + "\" is not PHASE@STEP[:INDEX]=kill|stop|throw");
  return x;
}

} // namespace

fault parse_fault(std::string_view text) {
  auto at = text.find('@');
  auto equals = text.find('=', at == std::string_view::npos ? 0 : at);
  if (at == std::string_view::npos || at == 0 || equals == std::string_view::npos)
    throw std::invalid_argument("fault \"" + std::string(text) + "\" is not PHASE@STEP[:INDEX]=kill|stop|throw");
  fault result;
  result.phase = text.substr(0, at);
  auto when = text.substr(at + 1, equals - at - 1);
  auto colon = when.find(':');
  if (auto step = when.substr(0, colon); step != "*")
    result.step = parse_number<std::uint64_t>(step, text);
  if (colon != std::string_view::npos)
    result.index = parse_number<std::uint32_t>(when.substr(colon + 1), text);
  auto action = text.substr(equals + 1);
  if (action == "kill")
    result.action = process_fault::kill;
  else if (action == "stop")
    result.action = process_fault::stop;
  else if (action == "throw")
    result.action = process_fault::throw_error;
  else
    throw std::invalid_argument("a fault's action is kill, stop or throw, not \"" + std::string(action) + "\"");
  return result;
}

bool matches(const fault& x, const fault_point& at) {
  return x.phase == at.phase && (!x.step || *x.step == at.step) && (!x.index || *x.index == at.index);
}

fault_injector::fault_injector(const std::vector<fault>& faults) {
  for (const auto& x : faults)
    faults_.emplace_back().what = x;
}

void fault_injector::operator()(const fault_point& at) {
  for (auto& x : faults_) {
    if (!matches(x.what, at) || x.done.exchange(true))
      continue;
    spdlog::warn("injected fault in {} of step {}, generation {}", at.phase, at.step, at.at.value);
    switch (x.what.action) {
    case process_fault::kill:
      kill(getpid(), SIGKILL);
      break;
    case process_fault::stop:
      kill(getpid(), SIGSTOP);
      break;
    case process_fault::throw_error:
      throw std::runtime_error("injected failure");
    }
  }
}

} // namespace parcae
