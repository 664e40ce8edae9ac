#include "runtime/view/printable_status.hpp"

#include "protocols/base/printable.hpp"

#include <cstddef>

namespace parcae {

namespace {

constexpr std::size_t most_text_bytes = 2000;

void make_printable(std::string& x) {
  x = printable(x, most_text_bytes);
}

void make_printable(instance_status& x) {
  for (auto* text : {&x.name, &x.role, &x.state, &x.host, &x.processor})
    make_printable(*text);
}

void make_printable(change_status& x) {
  for (auto* text : {&x.trigger, &x.configuration, &x.kind})
    make_printable(*text);
}

void make_printable(weighed_choice& x) {
  make_printable(x.configuration);
}

void make_printable(event_status& x) {
  for (auto* text : {&x.level, &x.text})
    make_printable(*text);
}

void make_printable(checkpoint_folder& x) {
  for (auto* text : {&x.keeper, &x.folder})
    make_printable(*text);
}

void make_printable(keeper_status& x) {
  make_printable(x.keeper);
}

void make_printable(memory_status& x) {
  make_printable(x.slot);
}

template <class T>
void make_printable(std::vector<T>& all) {
  for (auto& x : all)
    make_printable(x);
}

void make_printable(decision& x) {
  for (auto* text : {&x.trigger, &x.policy, &x.reason})
    make_printable(*text);
  make_printable(x.chosen);
  make_printable(x.runners_up);
}

void make_printable(failure_status& x) {
  for (auto* text : {&x.instance, &x.what})
    make_printable(*text);
  make_printable(x.lines);
}

void make_printable(job_status& x) {
  for (auto* text : {&x.name, &x.state, &x.phase, &x.problem, &x.idle, &x.parameters_sha256, &x.checkpoint_problem})
    make_printable(*text);
  make_printable(x.grid);
  make_printable(x.changes);
  make_printable(x.events);
  make_printable(x.checkpoint_folders);
  for (auto& decision : x.decisions)
    make_printable(decision);
  make_printable(x.keepers);
  make_printable(x.memory);
}

} // namespace

status_reply printable(status_reply x) {
  make_printable(x.instances);
  for (auto& job : x.jobs)
    make_printable(job);
  make_printable(x.news);
  for (auto& failure : x.failures)
    make_printable(failure);
  return x;
}

} // namespace parcae
