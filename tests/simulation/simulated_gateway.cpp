#include "tests/simulation/simulated_gateway.hpp"

#include <utility>

namespace parcae::simulation {

namespace {

constexpr nanoseconds pass = 20ms;
constexpr std::size_t requests_at_once = 4;

std::uint32_t token_at(std::uint64_t seed, std::uint32_t position) {
  return static_cast<std::uint32_t>((seed * 2654435761u + position * 40503u) >> 3) % 16;
}

} // namespace

simulated_gateway::simulated_gateway(const executor_surroundings& around, process_ptr p, const slot_id& slot,
                                     std::function<void(report)> report_to) :
    around_(around),
    process_(std::move(p)), slot_(slot), report_to_(std::move(report_to)),
    book_({},
          {.on_token = [this](auto id, auto position, auto token) { hear_token(id, position, token); },
           .on_end = [this](auto id, auto why) { hear_end(id, why); }},
          around_.time.chance().number() << 32),
    pipelines_(book_, {.connect = [this](auto i) { connect(i); },
                       .cut = [this](auto i) { links_[i] = {}; },
                       .send =
                           [this](auto i, const auto& x) {
                             links_[i].frames.push_back(x);
                             run_next(i);
                           }}) {
  if (around_.spoil_gateway)
    around_.spoil_gateway(book_, pipelines_);
  tick();
}

simulated_gateway::~simulated_gateway() {
  *alive_ = false;
}

std::uint64_t simulated_gateway::now_ms() const {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(around_.time.now().time_since_epoch()).count());
}

void simulated_gateway::later(nanoseconds delay, std::function<void()> what) {
  around_.time.after(process_, delay, [what = std::move(what), alive = alive_] {
    if (*alive)
      what();
  });
}

void simulated_gateway::obey(gateway_command x) {
  around_.sees.given(slot_, widened<command>(x), around_.time.now());
  if (auto* r = std::get_if<route>(&x)) {
    follow(std::move(*r));
    say();
  } else {
    pipelines_.close();
    pipelines_.route(0, {}, now_ms());
    told_.reset();
  }
}

void simulated_gateway::follow(route x) {
  if (told_ && told_->current == x.current && told_->token == x.token && told_->target == x.target)
    return;
  pipelines_.route(0, {}, now_ms());
  told_ = std::move(x);
  const auto& grid = told_->target;
  links_.assign(grid.width, {});
  pipelines_.route(grid.width, {.depth = std::max(1u, grid.depth), .batch = 64, .chunk = 4, .sizes = {16, 48}},
                   now_ms());
}

void simulated_gateway::say() {
  if (!told_)
    return;
  routed x{told_->job, told_->current, told_->target.width, {}, {}, {}};
  for (std::uint32_t i = 0; i < pipelines_.count(); ++i)
    x.cached.push_back(pipelines_.cached_in(i));
  if (const auto& comes = around_.comes; !comes.is_nothing()) {
    x.requests.arrivals_per_s = comes.at(around_.time.now());
    x.answered = {{4, 4}, {6, 5}};
  }
  report_to_(std::move(x));
  later(1s, [this, number = ++telling_] {
    if (number == telling_)
      say();
  });
}

void simulated_gateway::tick() {
  ask_for_more();
  pipelines_.tick(now_ms());
  later(100ms, [this] { tick(); });
}

// --- clients

void simulated_gateway::ask_for_more() {
  while (told_ && book_.size() < requests_at_once) {
    auto& chance = around_.time.chance();
    const auto context = told_->specification.context();
    const auto prompt = 1 + static_cast<std::uint32_t>(chance.below(context / 2));
    const auto tokens = 1 + static_cast<std::uint32_t>(chance.below(context - prompt));
    const auto seed = chance.number();
    const auto id = book_.add({std::vector<std::uint32_t>(prompt, 1), tokens, {.seed = seed}}, now_ms());
    if (!id)
      return;
    clients_[*id] = {seed, prompt, prompt + tokens};
    pipelines_.look(now_ms());
  }
}

void simulated_gateway::hear_token(std::uint64_t id, std::uint32_t position, std::uint32_t token) {
  auto& x = clients_.at(id);
  if (position != x.next++ || token != token_at(x.seed, position))
    around_.sees.object("request " + std::to_string(id) + " is told another token at position " +
                        std::to_string(position));
}

void simulated_gateway::hear_end(std::uint64_t id, request_end why) {
  const auto x = clients_.extract(id).mapped();
  if (why == request_end::length ? x.next != x.most : why != request_end::closed && why != request_end::unserved)
    around_.sees.object("request " + std::to_string(id) + " ends before it has all tokens");
}

std::set<std::uint64_t> simulated_gateway::open() const {
  std::set<std::uint64_t> result;
  for (const auto& [id, x] : clients_)
    result.insert(id);
  return result;
}

// --- links

bool simulated_gateway::is_of(std::uint32_t pipeline, std::uint64_t connection) const {
  return pipeline < links_.size() && links_[pipeline].connection == connection;
}

void simulated_gateway::connect(std::uint32_t pipeline) {
  links_[pipeline] = {.connection = ++connections_};
  try_to_connect(pipeline, connections_);
}

void simulated_gateway::try_to_connect(std::uint32_t pipeline, std::uint64_t connection) {
  later(around_.time.chance().between(1ms, 50ms), [=, this] {
    if (!is_of(pipeline, connection))
      return;
    const auto serves = [&](std::uint32_t stage) {
      const auto* end = around_.plane.reached(slot_of(pipeline, stage));
      return end && end->serves_now(told_->current);
    };
    std::uint32_t stage = 0;
    while (stage < told_->target.depth && serves(stage))
      ++stage;
    if (stage == told_->target.depth)
      pipelines_.connected(pipeline, around_.time.chance().number() | 1, now_ms());
    else
      try_to_connect(pipeline, connection);
  });
}

const slot_id& simulated_gateway::slot_of(std::uint32_t pipeline, std::uint32_t stage) const {
  const auto& grid = told_->target;
  return grid.participants[grid.rank(pipeline, stage)].slot;
}

void simulated_gateway::run_next(std::uint32_t pipeline) {
  auto& x = links_[pipeline];
  if (x.frames.empty() || std::exchange(x.is_busy, true))
    return;
  later(pass, [=, this, connection = x.connection] {
    if (is_of(pipeline, connection))
      run(pipeline, connection, 0);
  });
}

void simulated_gateway::run(std::uint32_t pipeline, std::uint64_t connection, std::uint32_t stage) {
  const auto g = told_->current;
  around_.plane.bring_pass(slot_of(pipeline, stage), [=, this, alive = alive_](data_end* end) {
    if (!*alive || !is_of(pipeline, connection))
      return;
    const auto how = end ? end->on_pass(g, links_[pipeline].frames.front()) : pass_outcome::gone;
    if (how == pass_outcome::computed && stage + 1 < told_->target.depth)
      run(pipeline, connection, stage + 1);
    else
      later(around_.time.chance().between(50us, 3ms), [=, this] { end_pass(pipeline, connection, how); });
  });
}

void simulated_gateway::end_pass(std::uint32_t pipeline, std::uint64_t connection, pass_outcome how) {
  if (!is_of(pipeline, connection))
    return;
  if (how == pass_outcome::gone)
    return pipelines_.broke(pipeline, now_ms());
  auto& x = links_[pipeline];
  const auto frame = std::move(x.frames.front());
  x.frames.pop_front();
  x.is_busy = false;
  pass_answer answer{.kind = how == pass_outcome::drained ? pass_frame_kind::drained : frame.kind,
                     .epoch = frame.epoch,
                     .number = frame.number,
                     .room = frame.room};
  if (frame.kind == pass_frame_kind::held)
    answer.tokens = frame.rows;
  for (const auto& [row, way] : frame.draws) {
    const auto position = frame.rows[row].position + 1;
    answer.tokens.push_back({frame.rows[row].request, position, token_at(way.seed, position)});
  }
  pipelines_.answered(pipeline, answer, now_ms());
  if (is_of(pipeline, connection))
    run_next(pipeline);
}

} // namespace parcae::simulation
