#include "actors/conductor/recollection.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace parcae {

namespace {

constexpr std::size_t max_evaluations = 1000; // that wait for their step

} // namespace

recollection::recollection(loss_record known, std::uint32_t samples, std::uint64_t evaluate_every,
                           std::uint64_t begin) :
    known_(std::move(known)),
    samples_(samples), evaluate_every_(evaluate_every) {
  while (known_.find(complete_))
    ++complete_;
  // Of evaluations before the last that is due, what is not known now will not be.
  if (complete_ > 0 && evaluate_every > 0)
    complete_ -= (complete_ - 1) % evaluate_every + 1;
  evaluation_given_up_ = std::max(complete_, begin);
  evaluation_given_up_ -= std::min<std::uint64_t>(evaluation_given_up_, 1);
  advance();
  settled_ = settles_ = complete_;
}

bool recollection::awaits_evaluation(std::uint64_t steps) const {
  if (steps <= evaluation_given_up_ || evaluate_every_ == 0 || steps % evaluate_every_ != 0)
    return false;
  const auto* made_by = known_.find(steps - 1);
  return made_by && !made_by->validation_loss;
}

void recollection::advance() {
  for (; known_.find(complete_); ++complete_) {
    if (const auto known = evaluations_.extract(complete_))
      known_.evaluate(complete_ - 1, known.mapped());
    if (awaits_evaluation(complete_))
      return;
  }
  if (const auto known = evaluations_.extract(complete_))
    evaluate(complete_, known.mapped());
  evaluations_.erase(evaluations_.begin(), evaluations_.lower_bound(complete_));
}

std::string recollection::hear(const std::vector<char>& block, std::uint64_t limit) {
  if (block.empty())
    return {};
  try {
    const auto x = decode_loss_block(block);
    const auto differs = known_.put(x, limit);
    const auto before = complete_;
    advance();
    if (complete_ > before && x.all.size() == loss_block_steps)
      next_ = {}; // there may be more
    return differs ? "step " + std::to_string(*differs) + " came to another loss, norm or rate than before" : "";
  } catch (const std::runtime_error& e) {
    return e.what();
  }
}

void recollection::decide(const commit_result& x) {
  if (x.step == no_step || known_.find(x.step))
    return;
  const auto* before = x.step > 0 ? known_.find(x.step - 1) : nullptr;
  known_.put(x.step, {x.loss, x.gradient_norm, x.learning_rate, {}, before ? before->at_ms : 1});
  advance();
}

void recollection::evaluate(std::uint64_t steps, double loss) {
  if (steps == 0)
    return;
  if (known_.find(steps - 1)) {
    known_.evaluate(steps - 1, loss);
    return advance();
  }
  evaluations_[steps] = loss;
  if (evaluations_.size() > max_evaluations)
    evaluations_.erase(evaluations_.begin());
}

bool recollection::has_all_of(std::uint64_t steps) const {
  return steps <= complete_ && (steps <= evaluation_given_up_ || !known_.find(steps - 1) || has_evaluation(steps));
}

bool recollection::has_evaluation(std::uint64_t steps) const {
  const auto* last = steps > 0 ? known_.find(steps - 1) : nullptr;
  return last ? last->validation_loss.has_value() : evaluations_.contains(steps);
}

void recollection::go_back(std::uint64_t steps) {
  evaluations_.erase(evaluations_.upper_bound(steps), evaluations_.end());
  known_.go_back(steps);
  for (auto* x : {&complete_, &settled_, &settles_, &evaluation_given_up_})
    *x = std::min(*x, steps);
}

std::optional<std::uint64_t> recollection::ask(time_point now, std::uint64_t committed) {
  if (now >= settles_at_) {
    settled_ = std::exchange(settles_, complete_);
    settles_at_ = now + settling;
  }
  if (complete_ >= committed || now < next_)
    return std::nullopt;
  next_ = now + pause;
  if (std::exchange(asked_from_, complete_) != complete_)
    questions_ = 0;
  if (++questions_ > patience && known_.first_known(complete_) < known_.steps())
    give_up(committed);
  return complete_ < committed ? std::optional(complete_) : std::nullopt;
}

std::vector<char> recollection::newest(std::uint64_t until) const {
  const auto from =
      std::max(settled_ - std::min<std::uint64_t>(settled_, 1), until - std::min(until, loss_block_steps));
  const auto block = known_.part(from, until);
  return block.all.empty() ? std::vector<char>() : encode(block);
}

void recollection::give_up(std::uint64_t committed) {
  questions_ = 0;
  if (awaits_evaluation(complete_)) {
    given_up_ = "what came of the evaluation of version " + std::to_string(complete_) + " is not known";
    evaluation_given_up_ = complete_;
    return advance();
  }
  const auto known = known_.first_known(complete_);
  const auto next = known < known_.steps() ? std::min(known, committed) : committed;
  given_up_ = "what came of steps " + std::to_string(complete_) + " to " + std::to_string(next - 1) +
              " is not known: nobody is left who computed them, or has it from a checkpoint";
  known_.skip_to(next);
  complete_ = next;
  advance();
}

std::vector<std::vector<char>> recollection::untold(const slot_id& keeper) {
  auto& told = told_[keeper];
  std::vector<std::vector<char>> result;
  for (const auto first : known_.changed_since(told)) {
    auto block = known_.part(first);
    block.samples = samples_;
    result.push_back(encode(block));
  }
  told = known_;
  return result;
}

} // namespace parcae
