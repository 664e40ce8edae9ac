#include "tests/actors/conductor/transition_scenes.hpp"

namespace parcae {

void add_answer_scenes(scene_list& add) {
  using enum phase;
  using enum trigger_kind;
  const auto anew = add.with(false);
  const auto from_checkpoint = add.with(false, 1000, 4);
  const auto at_end = add.with(false, 1);
  const auto say_failed = [](const char* name, std::uint64_t more, failure kind) {
    return [=](stage_set& s) { s.d.say(name, failed{{s.d.view().current.value + more}, kind, 0, "threw", {}}); };
  };
  const auto say_prepared = [](std::uint64_t more) {
    return [more](stage_set& s) {
      const auto plan = s.newest_prepare("b");
      s.release("b", prepared{plan.next, checksum_of(plan) + more});
    };
  };
  const auto say_aborted = [](stage_set& s) {
    s.release("b", aborted{s.newest_prepare("b").next, {1, {1}}, no_step, {}, {}});
  };
  const auto say_progress = [](stage_set& s) {
    const auto g = s.d.view().current;
    s.d.say("b", progress{g, {1, g}, {0, 0}, 100, {}});
  };
  const auto first_commit_in = [=](auto... kept_back) { // the first that is heard of it
    return [=](stage_set& s) {
      s.two();
      s.d.keep_back<decltype(kept_back)...>();
      s.third();
      say_progress(s);
    };
  };
  const auto recover = [](stage_set& s) { s.bring_to(recovering); };
  const auto recover_ended = [](stage_set& s) { // and who is left has answered
    s.bring_to(deciding);
    s.d.hold_back = nullptr;
    s.die();
  };
  anew({recovering}, came, "nobody came before", recover);
  anew({recovering}, rank_came, "its pipeline was not cut", recover);
  anew({recovering}, source_came, "g may train", [](stage_set& s) {
    s.begin_from_keeper(activating);
    s.die();
  });
  add({recovering}, says_active, "g may train", [](stage_set& s) {
    s.d.silent.erase("a");
    s.d.reconnect("a");
  });
  anew({recovering}, says_aborted, "of g, which had ended", recover_ended);
  anew({recovering}, rank_heard, "of each stage, and g does not train", recover_ended);
  anew({recovering}, failed_alive, "g had ended", [=](stage_set& s) {
    s.bring_to(deciding);
    s.d.silent = {"b"};
    s.die();
    say_failed("b", 0, failure::computation)(s);
  });
  from_checkpoint({waiting}, says_restored, "", [](stage_set& s) { s.read_checkpoint(); });
  const auto read_slowly = [](stage_set& s) {
    s.lose_all_but_a_checkpoint();
    s.d.keep_back<parcae::kept, restored>();
    s.join("k");
  };
  from_checkpoint({waiting}, says_kept, "it reads a checkpoint", [=](stage_set& s) {
    read_slowly(s);
    s.d.say("k", parcae::kept{job_id{1}, {}, {}, {}});
  });
  add({waiting}, keeper_heard, "", [](stage_set& s) { s.d.add("k", true); });
  anew({waiting}, newer_kept, "", [](stage_set& s) {
    s.d.add_keeper_and_worker();
    s.d.train(4);
    s.d.lose("a");
    s.d.hold("k", {});
  });
  add({waiting}, loading, "no slot can be used", [](stage_set& s) { s.d.add("a"); });
  add({waiting}, silent, "", [=](stage_set& s) {
    s.d.keep_back<loaded, aborted>();
    s.d.add("a");
    s.d.say("a", failed{{}, failure::computation, 0, "threw", {}});
    s.d.advance(10s);
  });
  anew({waiting}, returned, "what is saved has not arrived", [](stage_set& s) {
    s.d.add_keeper_and_worker();
    s.d.step();
    s.d.notice("a", 20s);
    s.d.advance(20s);
    s.d.reconnect("a");
  });
  anew({planning}, says_aborted, "of no generation", [](stage_set& s) { s.lose_newest(); });
  from_checkpoint({planning}, says_restored, "", [=](stage_set& s) {
    read_slowly(s);
    s.d.slow_planner = true;
    s.third();
    s.d.hold_back = nullptr;
    s.d.reconnect("k");
  });
  add({preparing, readying}, says_prepared, "it understood another plan", say_prepared(1));
  add({preparing, readying}, says_prepared, "", say_prepared(0));
  add({preparing, readying}, unreachable, "", [=](stage_set& s) {
    const auto plan = s.newest_prepare("b");
    s.d.say("b", failed{plan.next, failure::unreachable, 0, "no route", {}});
  });
  add({clearing}, says_aborted, "of g+1", say_aborted);
  add({clearing}, failed_alive, "", say_failed("b", 1, failure::computation));
  add({activating}, says_active, "", [](stage_set& s) { s.release("a", active{s.d.view().current}); });
  add({running, recovering, readying, warming, stopping, aborting, activating, finishing}, says_progress, "",
      say_progress);
  add({running}, says_evaluated, "", [](stage_set& s) {
    evaluated x;
    x.current = s.d.view().current;
    s.d.say("a", x);
  });
  add({running}, first_commit, "", say_progress);
  anew({readying}, first_commit, "", first_commit_in(prepared{}));
  anew({warming}, first_commit, "", [=](stage_set& s) { // what a step takes is known of the generation before
    s.two();
    s.d.step();
    s.third();
    s.d.keep_back<warmed>();
    s.d.add("d");
    s.d.advance(20ms);
    say_progress(s);
  });
  anew({stopping}, first_commit, "", first_commit_in(stopped{}));
  add({stopping}, says_stopped, "", [](stage_set& s) {
    const auto g = s.d.view().current;
    s.release("a", stopped{g, {1, g}, {}});
  });
  add({warming}, says_warmed, "", [](stage_set& s) { s.release("a", warmed{.next = {s.d.view().current.value + 1}}); });
  add({warming, stopping}, leaving, "", [](stage_set& s) { s.d.notice("c", 1s); });
  add({aborting}, says_aborted, "of g", say_aborted);
  anew({aborting}, rank_heard, "",
       [=](stage_set& s) { // while another is awaited
         s.two();
         s.third();
         s.d.keep_back<aborted>();
         s.d.lose("a");
         say_aborted(s);
       });
  add({aborting}, keeper_came, "the keepers were asked", [=](stage_set& s) {
    s.d.add("k", true);
    s.d.silent = {"k"};
    s.lose_stage();
    s.d.add("l", true);
  });
  anew({aborting}, rank_came, "of the manager before", [](stage_set& s) {
    s.two();
    s.d.step();
    s.d.silent = {"a"};
    std::mt19937_64 random(1);
    s.d.kill_manager();
    s.d.lose("b");
    s.d.restart_manager(random);
    s.d.advance(6s);
    s.d.come_back("b");
  });
  add({aborting}, asked_back, "it is a rank of g", [=](stage_set& s) {
    say_failed("b", 0, failure::computation)(s);
    s.d.advance(2s);
  });
  add({aborting, deciding}, failed_alive, "", say_failed("b", 0, failure::computation));
  add({deciding}, says_decided, "", [](stage_set& s) { s.release("b", decided{s.d.view().current, {}}); });
  at_end({finishing}, written, "", [=](stage_set& s) {
    s.final_is_kept();
    s.d.disk_problem.clear();
    s.late();
  });
  at_end({finishing}, not_written, "", [=](stage_set& s) { s.final_is_kept(); });
  at_end({finishing}, says_recalled, "", [](stage_set& s) {
    s.final_is_kept_unheard();
    s.release("a", recalled{{1}, 0, {}});
  });
  at_end({finishing}, all_answered, "", [](stage_set& s) {
    s.final_is_kept_unheard();
    for (const auto* name : {"a", "b", "k"})
      s.release(name, recalled{{1}, 0, {}});
  });
}

} // namespace parcae
