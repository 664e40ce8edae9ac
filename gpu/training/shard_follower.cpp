#include "gpu/training/shard_follower.hpp"

#include "gpu/layers/optimizer.hpp"
#include "protocols/base/crash_stack.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <string>
#include <utility>

namespace parcae {

namespace {

constexpr std::chrono::hours reading_limit{1}; ///< the conductor's limits are shorter

/// A source has sent the gradients of all steps but the newest two before it ends another.
constexpr std::size_t commits_kept = 64;

/// Of a layer, behind a commit that has not come: a source has a gradient there and what replaces buffers, twice.
constexpr std::size_t notes_kept = 64;

[[noreturn]] void refuse(const feed_note& x, const char* why) {
  throw communication_error("a feed is not understood: layer " + std::to_string(x.layer) + " at " + to_string(x.at) +
                            ": " + why);
}

} // namespace

shard_follower::shard_follower(communicator& over, const prepare& what, std::uint32_t self,
                               const model_description& model, const tensor_device& on, const layer_store& arriving,
                               const executor_options& options, callbacks tells) :
    over_(over),
    what_(what), model_(model), on_(on), options_(options), tells_(std::move(tells)),
    account_(tensor_account::of_this_thread()), began_(std::chrono::steady_clock::now()) {
  for (const auto& move : what.moves) {
    if (move.destination != self)
      continue;
    auto of = std::ranges::find(sources_, move.source, &source::participant);
    if (of == sources_.end())
      of = sources_.insert(of, {.participant = move.source});
    of->set_bytes += model.layers[move.layer].parameters() * sizeof(float);
    layers_.emplace(move.layer,
                    followed_layer{.of = static_cast<std::size_t>(of - sources_.begin()),
                                   .into = arriving.at(move.layer),
                                   .runs = parameter_runs(model, move.layer, what.specification.optimizer)});
  }
  const auto in_account = [this](auto f) {
    return std::thread([this, f] {
      use_crash_stack();
      const tensor_account::scope counted(account_);
      try {
        f();
      } catch (const std::exception& e) {
        on_.note_end(e); // now: another fault may have been told before
        fail(std::current_exception());
      } catch (...) {
        fail(std::current_exception());
      }
    });
  };
  applier_ = in_account([this] { apply_all(); });
  for (std::size_t i = 0; i < sources_.size(); ++i)
    sources_[i].reader = in_account([this, i] { read(i); });
}

shard_follower::~shard_follower() {
  join();
}

void shard_follower::join() {
  give_up();
  for (auto& x : sources_)
    if (x.reader.joinable())
      x.reader.join();
  events_.close();
  if (applier_.joinable())
    applier_.join();
}

std::map<std::uint32_t, version> shard_follower::break_off() {
  join();
  std::map<std::uint32_t, version> result;
  for (const auto& [number, layer] : layers_)
    if (layer.now == standing::followed && (!layer.into.buffers.defined() || layer.buffers_at == layer.into.at))
      result.emplace(number, layer.into.at);
  return result;
}

void shard_follower::give_up() {
  const lock held(mutex_);
  closed_ = true;
  changed_.notify_all();
}

void shard_follower::fail(std::exception_ptr why) {
  {
    const lock held(mutex_);
    changed_.notify_all();
    if (closed_ || failure_)
      return;
    failure_ = why;
  }
  tells_.fails(why);
}

// Readers

void shard_follower::read(std::size_t of) {
  const auto& from = sources_[of];
  std::map<std::uint32_t, base> bases;
  for (std::uint64_t number = 0;; ++number) {
    encoded_feed_note coded;
    over_.wait(over_.receive(from.participant, feed_note_tag(number), coded), reading_limit);
    const auto note = decode_feed_note(coded, static_cast<std::uint32_t>(model_.layers.size()));
    if (note.kind == feed_kind::commit || note.kind == feed_kind::end) {
      events_.put({of, note, {}});
      if (note.kind == feed_kind::end)
        return;
      continue;
    }
    const auto known = layers_.find(note.layer);
    if (known == layers_.end() || known->second.of != of)
      refuse(note, "nobody asked for it");
    auto& based = bases[note.layer];
    auto payload = read_payload(from, note, based);
    if (note.kind != feed_kind::base || based.is_there)
      events_.put({of, note, std::move(payload)});
  }
}

at::Tensor shard_follower::read_payload(const source& from, const feed_note& note, base& based) {
  const auto& into = layers_.at(note.layer).into;
  const auto is = [&](feed_kind x) { return note.kind == x; };
  if (is(feed_kind::cold))
    return {};
  if (is(feed_kind::base) == based.is_there)
    refuse(note, based.is_there ? "it is there already" : "it is not there");
  at::Tensor payload;
  if (is(feed_kind::base)) {
    const auto parts = into.parts();
    if (based.parts > 0 && note.at != based.at)
      refuse(note, "its parts are of several versions");
    based.at = note.at;
    receive(from, note, based.parts, parts[based.parts]);
    based.is_there = ++based.parts == parts.size();
  } else if (is(feed_kind::gradient)) {
    wait_for_room(from, into.parameters.nbytes());
    payload = at::empty(into.parameters.sizes(), into.parameters.options());
    receive(from, note, gradient_part, payload);
  } else {
    if (!into.buffers.defined())
      refuse(note, "it has no buffers");
    payload = at::empty(into.buffers.sizes(), into.buffers.options());
    receive(from, note, buffers_part, payload);
  }
  if (options_.on_fault_point)
    options_.on_fault_point(
        {is(feed_kind::base) ? "follow_base" : "follow_gradient", what_.next, note.at.steps, note.layer});
  return payload;
}

void shard_follower::receive(const source& from, const feed_note& note, std::size_t part, const at::Tensor& into) {
  over_.wait(over_.receive(from.participant, shard_tag(note.at, note.layer, part), on_.memory_of(into)), reading_limit);
  const lock held(mutex_);
  bytes_ += into.nbytes();
}

// Of one set: before another one begins comes the commit of the first, with which that can be applied.
void shard_follower::wait_for_room(const source& from, std::uint64_t bytes) {
  lock held(mutex_);
  auto& waiting = waiting_[from.participant];
  while (waiting + bytes > from.set_bytes && !closed_ && !failure_)
    held.wait(changed_);
  waiting += bytes;
}

void shard_follower::give_room(const followed_layer& x) {
  const lock held(mutex_);
  waiting_[sources_[x.of].participant] -= x.into.parameters.nbytes();
  changed_.notify_all();
}

// The applying thread

void shard_follower::apply_all() {
  const auto threads = what_.specification.threads;
  at::set_num_threads(static_cast<int>(threads > 0 ? threads : options_.cores));
  while (auto x = events_.take()) {
    take(std::move(*x));
    look_whether_warm();
  }
}

void shard_follower::take(event x) {
  auto& from = sources_[x.of];
  if (x.note.kind == feed_kind::end) {
    const lock held(mutex_);
    ends_[x.of] = x.note.at;
    changed_.notify_all();
  } else if (x.note.kind == feed_kind::commit) {
    from.newest = std::max(from.newest, x.note.at.steps);
    from.commits[x.note.at.steps] = x.note;
    if (from.commits.size() > commits_kept)
      from.commits.erase(from.commits.begin());
    for (auto& [number, layer] : layers_)
      if (layer.of == x.of)
        go_on(layer, number);
  } else {
    auto& layer = layers_.at(x.note.layer);
    if (x.note.kind == feed_kind::cold) {
      for (; !layer.todo.empty(); layer.todo.pop_front())
        if (layer.todo.front().note.kind == feed_kind::gradient)
          give_room(layer);
      layer.now = standing::cold;
    } else if (x.note.kind == feed_kind::base) {
      layer.now = standing::followed;
      layer.into.at = layer.buffers_at = x.note.at;
    } else {
      if (layer.todo.size() == notes_kept)
        refuse(x.note, "too much of it waits for a commit");
      layer.todo.push_back({x.note, std::move(x.payload)});
      go_on(layer, x.note.layer);
    }
  }
}

// As far as it can.
void shard_follower::go_on(followed_layer& x, std::uint32_t number) {
  while (!x.todo.empty()) {
    const auto& next = x.todo.front();
    const auto& note = next.note;
    if (note.at != x.into.at)
      refuse(note, "it is at another version");
    if (note.kind == feed_kind::buffers) {
      on_.compute().copy(x.into.buffers.data_ptr(), next.payload.const_data_ptr(), next.payload.nbytes());
      x.buffers_at = note.at;
    } else {
      const auto& commits = sources_[x.of].commits;
      const auto commit = commits.find(note.at.steps + 1);
      if (commit == commits.end())
        return;
      apply(x, commit->second, next.payload);
      give_room(x);
      if (options_.on_fault_point)
        options_.on_fault_point({"follow", what_.next, note.at.steps, number});
    }
    x.todo.pop_front();
  }
}

// As stage_training does.
void shard_follower::apply(followed_layer& x, const feed_note& commit, const at::Tensor& gradient) {
  auto& state = x.into;
  x.now = standing::cold; // if this throws it is of no version
  if (!commit.skipped)
    apply_optimizer(what_.specification.optimizer, state.parameters, state.moments, gradient, state.at.steps,
                    commit.rate, commit.clip, x.runs, on_);
  if (commit.course && state.course.defined())
    set_course(state, *commit.course);
  state.at = commit.at;
  x.now = standing::followed;
}

bool shard_follower::is_there(const followed_layer& x, const version& at) {
  return x.now == standing::followed && x.todo.empty() && x.into.at == at &&
         (!x.into.buffers.defined() || x.buffers_at == at);
}

void shard_follower::look_whether_warm() {
  const auto behind = [&](const auto& x) {
    const auto& [number, layer] = x;
    return layer.now != standing::cold &&
           !(is_there(layer, layer.into.at) && layer.into.at.steps >= sources_[layer.of].newest);
  };
  if (is_warm_ || std::ranges::any_of(layers_, behind))
    return;
  is_warm_ = true;
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - began_;
  tells_.warm(
      [this] {
        const lock held(mutex_);
        return bytes_;
      }(),
      took.count());
}

std::set<std::uint32_t> shard_follower::wait_end(const version& at) {
  {
    lock held(mutex_);
    while (ends_.size() < sources_.size() && !failure_ && !closed_)
      held.wait(changed_);
    if (failure_)
      std::rethrow_exception(failure_);
    if (ends_.size() < sources_.size())
      throw communication_error("aborted");
    for (const auto& [of, end] : ends_)
      if (end != at)
        throw communication_error("a feed ends at version " + to_string(end) + ", and not at " + to_string(at));
  }
  std::set<std::uint32_t> result; // nothing comes to the applying thread any more
  for (const auto& [number, layer] : layers_) {
    if (layer.now != standing::followed)
      continue;
    if (!is_there(layer, at))
      throw communication_error("layer " + std::to_string(number) + " was followed to version " +
                                to_string(layer.into.at) + ", and not to " + to_string(at));
    result.insert(number);
  }
  return result;
}

} // namespace parcae
