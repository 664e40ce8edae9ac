#include "tests/actors/conductor/transition_scenes.hpp"

namespace parcae {

void add_phase_scenes(scene_list& add) {
  using enum phase;
  using enum trigger_kind;
  const auto from_checkpoint = add.with(false, 1000, 4);
  const auto at_end = add.with(false, 1);
  const auto anew = add.with(false);
  const auto of_three_anew = add.with(false, 3);
  const auto of_five_steps = add.with(true, 5);
  const auto of_two_steps = add.with(true, 2);
  const auto of_three_steps = add.with(true, 3);
  const auto lose = [](const char* name) { return [name](stage_set& s) { s.d.lose(name); }; };
  const auto pass_limit = [](stage_set& s) { s.late(); };
  const auto close = [](stage_set& s) { s.close(); };
  const auto break_of = [](std::uint64_t more) {
    return [more](stage_set& s) {
      const auto g = s.d.view().current.value;
      s.d.say("b", failed{{g + more}, failure::communication, 0, "closed", {}});
    };
  };

  // waiting
  add({waiting}, due, "", [](stage_set& s) { s.two(); });
  from_checkpoint({waiting}, all_answered, "", [](stage_set& s) { s.read_checkpoint(); });
  at_end({waiting, planning}, kept, "the keepers hold the final version, and it was evaluated", [=](stage_set& s) {
    const auto held = s.final_is_kept();
    s.d.hold("k", {});
    s.d.lose("a");
    s.d.lose("b");
    s.d.advance(1s);
    s.d.hold("k", held);
  });
  add({waiting}, lost, "", [](stage_set& s) {
    s.d.add("k", true);
    s.d.lose("k");
  });
  add({waiting}, closing, "", close);
  // planning
  add({planning}, nobody, "", [](stage_set& s) {
    s.d.lose("a");
    s.d.lose("b");
    s.d.answer_plans();
  });
  add({planning}, chosen, "nothing fits", [](stage_set& s) {
    s.d.slow_planner = false;
    s.d.depth = 3;
    s.late();
  });
  add({planning}, chosen, "it takes more slots than are left", [](stage_set& s) {
    s.d.lose("a");
    s.d.answer_plans();
  });
  anew({planning}, chosen, "who holds newer state may come back",
       [](stage_set& s) { // b said what it alone holds, and then nothing more
         s.d.depth = 2;
         s.two();
         s.d.add("c");
         s.d.advance(1s);
         s.d.step();
         s.d.slow_planner = true;
         s.d.say("a", failed{s.d.view().current, failure::communication, 0, "closed", {}});
         s.d.silent.insert("b");
         s.d.slow_planner = false;
         s.d.answer_plans();
         s.d.advance(70s);
       });
  from_checkpoint({planning}, chosen, "the checkpoint is newer, and keepers have to read it",
                  [](stage_set& s) { s.read_checkpoint(); });
  from_checkpoint({planning}, chosen, "the checkpoint is newer, and is lost", [](stage_set& s) {
    s.lose_all_but_a_checkpoint();
    s.d.disks.clear();
    s.d.disk_problem = "damaged";
    s.join("k");
  });
  from_checkpoint({planning}, chosen, "the checkpoint is newer, and a part is missing", [](stage_set& s) {
    s.lose_all_but_a_checkpoint();
    s.join("other");
  });
  add({planning}, chosen, "", [](stage_set& s) { s.d.answer_plans(); });
  anew({planning}, chosen, "steps would be given up, and the keepers were not asked",
       [](stage_set& s) { s.lose_newest(); });
  anew({planning}, all_answered, "", [](stage_set& s) { s.lose_newest(); });
  add({planning}, trigger_kind::late, "", pass_limit);
  add({planning}, closing, "", close);
  // preparing, activating
  add({preparing}, all_answered, "", [](stage_set& s) {
    for (const auto* name : {"a", "b"})
      s.release(name, prepared{s.newest_prepare(name).next, checksum_of(s.newest_prepare(name))});
  });
  add({preparing}, part_lost, "", lose("b"));
  add({preparing}, next_broken, "", break_of(1));
  add({preparing}, notice, "to a rank of g+1, and ends before the limit", [](stage_set& s) { s.d.notice("b", 1s); });
  add({preparing}, closing, "", close);
  of_three_anew({activating}, all_answered, "all ranks have stopped, with no step left", [](stage_set& s) {
    s.bring_to(finishing);
    s.d.add("c");
    s.d.keep_back<active>();
    s.d.notice("a", 30s); // its final version moves to c, as there is no keeper
    for (const auto* name : {"b", "c"})
      s.d.say(name, active{s.d.view().current});
  });
  add({activating}, all_answered, "", [](stage_set& s) {
    for (const auto* name : {"a", "b", "c"})
      s.release(name, active{s.d.view().current});
  });
  // running
  add({running}, due, "", pass_limit);
  add({running}, chosen, "it fits, and is another or replaces who leaves", [](stage_set& s) { s.third(); });
  of_five_steps({running, readying, warming}, all_stopped, "at the final version", [](stage_set& s) {
    for (int i = 0; i < 10 && !s.d.ended(); ++i)
      s.d.step();
  });
  const auto beside = "g serves, and another pipeline of it is whole";
  add.of_service({running, readying, stopping, activating}, place_lost, beside, lose("b"));
  add.of_service({running, readying, stopping, activating}, broken, beside, break_of(0));
  add({running, readying, warming, stopping, activating}, place_lost, "", lose("b"));
  add({running, readying, warming, stopping, activating}, broken, "", break_of(0));
  add({running}, trigger_kind::late, "", pass_limit);
  for (const auto where : {running, activating}) {
    const auto lose_source = [=](stage_set& s) {
      s.begin_from_keeper(where);
      s.d.lose("k");
    };
    anew({where}, source_lost, "", lose_source);
    anew({where}, trigger_kind::late, "who sends it shards is lost", [=](stage_set& s) {
      lose_source(s);
      s.d.advance(10s);
    });
  }
  const auto notice_to_all = [](stage_set& s) {
    s.d.add("k", true);
    for (const auto* name : {"a", "b"})
      s.d.notice(name, 20s);
    s.d.advance(30s);
  };
  add({running}, last_moment, "", notice_to_all);
  add({running}, closing, "there is no keeper", close);
  add({running}, closing, "", [](stage_set& s) {
    s.d.add("k", true);
    s.close();
  });
  // readying
  const auto all_prepared = [](stage_set& s) {
    for (const auto* name : {"a", "b", "c"})
      s.release(name, prepared{s.newest_prepare(name).next, checksum_of(s.newest_prepare(name))});
  };
  add({readying}, all_answered, "", all_prepared);
  add({readying}, all_answered, "much is to be moved, and the links keep up", [=](stage_set& s) {
    s.d.keep_back<warmed>();
    all_prepared(s);
  });
  // warming
  add({warming}, all_answered, "", [](stage_set& s) {
    s.d.keep_back<stopped>();
    for (const auto* name : {"a", "b", "c"})
      s.release(name, warmed{.next = s.newest_prepare(name).next});
  });
  add({warming}, trigger_kind::late, "", [=](stage_set& s) {
    s.d.keep_back<stopped>();
    s.late();
  });
  add({warming}, last_moment, "", [](stage_set& s) {
    s.d.keep_back<stopped>();
    s.d.add("k", true);
    for (const auto* name : {"a", "b"})
      s.d.notice(name, 900ms);
    s.d.advance(500ms);
  });
  add({warming, stopping}, next_broken, "", break_of(1));
  add({warming, stopping}, refused, "not for want of its connections", [](stage_set& s) {
    s.d.say("c", failed{s.newest_prepare("c").next, failure::computation, 0, "out of memory", {}});
  });
  add({warming}, notice, "to one with a place in g or g+1, and ends before the limit",
      [](stage_set& s) { s.d.notice("c", 100ms); });
  // readying, warming
  add({readying, warming}, part_lost, "", lose("c"));
  add({readying}, refused, "", [](stage_set& s) {
    s.d.say("c", failed{s.newest_prepare("c").next, failure::computation, 0, "out of memory", {}});
  });
  add({readying}, trigger_kind::late, "", pass_limit);
  add({readying}, notice, "to one with a place in g or g+1, and ends before the limit",
      [](stage_set& s) { s.d.notice("c", 1s); });
  add({readying}, last_moment, "", notice_to_all);
  add({readying, warming}, closing, "", close);
  // stopping
  of_two_steps({stopping}, all_answered, "at the final version", [](stage_set& s) {
    const auto g = s.d.view().current;
    for (const auto* name : {"a", "b"})
      s.release(name, stopped{g, {2, g}, {}});
  });
  const auto stop = [](stage_set& s) {
    const auto g = s.d.view().current;
    inventory held;
    for (std::uint32_t layer = 0; layer < 4; ++layer)
      held.push_back({layer, {1, g}});
    for (const auto* name : {"a", "b"})
      s.release(name, stopped{g, {1, g}, held});
  };
  add({stopping}, all_answered, "g+1 is prepared", stop);
  add({stopping}, all_answered, "", [=](stage_set& s) {
    s.d.lose("c");
    stop(s);
  });
  add({stopping}, part_lost, "", lose("c"));
  add({stopping}, notice, "to a participant of g+1, and ends before the limit",
      [](stage_set& s) { s.d.notice("c", 1s); });
  add({stopping}, trigger_kind::late, "the notice to those who alone hold a stage is over", [](stage_set& s) {
    for (const auto* name : {"a", "b"})
      s.d.notice(name, 20s);
    s.d.advance(21s);
  });
  add({stopping}, trigger_kind::late, "", pass_limit);
  // clearing, aborting, deciding
  const auto say_aborted = [](std::uint64_t complete) {
    return [complete](stage_set& s) {
      const auto g = s.newest_prepare("b").next;
      inventory held;
      for (std::uint32_t layer = 0; layer < 4; ++layer)
        held.push_back({layer, {1, g}});
      s.release("b", aborted{g, {1, g}, complete, {.step = complete}, held});
    };
  };
  add({clearing}, all_answered, "", say_aborted(no_step));
  add({aborting}, all_answered, "nobody has anything left to apply", say_aborted(no_step));
  add({aborting}, all_answered, "", say_aborted(1));
  add({deciding}, all_answered, "", [](stage_set& s) { s.release("b", decided{s.newest_prepare("b").next, {}}); });
  add({planning, clearing, aborting, deciding}, lost, "", lose("b"));
  add({aborting}, all_answered, "a stage has nobody left, and the keepers were not asked", [=](stage_set& s) {
    s.d.add("k", true);
    s.lose_stage();
  });
  const auto lose_stage_at_return = [=](stage_set& s) {
    s.bring_to(running);
    s.d.step();
    s.die();
    s.d.keep_back<aborted>();
    s.d.say("b", failed{s.d.view().current, failure::communication, 0, "closed", {}});
    s.lose_stage();
  };
  anew({aborting}, all_answered, "a stage has nobody left, and who has it may be dialling", lose_stage_at_return);
  anew({aborting}, trigger_kind::late, "nobody is awaited but who might have been dialling", [=](stage_set& s) {
    lose_stage_at_return(s);
    s.late();
  });
  const auto only_holders = [](stage_set& s) { // of two stages, of which one has applied a step
    s.d.depth = 2;
    s.two();
    s.d.half_step(1);
    s.d.advance(6s);
  };
  const std::string only_holder = "the only holder of a stage may still answer";
  anew({aborting}, trigger_kind::late, only_holder, [=](stage_set& s) {
    s.d.keep_back<aborted>();
    only_holders(s);
  });
  anew({deciding}, trigger_kind::late, only_holder, [=](stage_set& s) {
    s.d.keep_back<decided>();
    only_holders(s);
  });
  add({preparing, activating, clearing, aborting, deciding}, trigger_kind::late, "", pass_limit);
  from_checkpoint({waiting}, trigger_kind::late, "", [](stage_set& s) {
    s.lose_all_but_a_checkpoint();
    s.d.keep_back<parcae::kept, restored>();
    s.join("k");
    s.d.advance(10min);
  });
  // finishing
  at_end({finishing}, place_lost, "the keepers hold the final version", [=](stage_set& s) {
    s.final_is_kept();
    s.d.lose("a");
  });
  of_three_steps({finishing}, lost, "nobody holds the final version whole", lose("b"));
  at_end({finishing}, kept, "nobody holds the final version whole", [=](stage_set& s) {
    s.final_is_kept();
    s.d.lose("a");
    s.d.lose("b");
    s.d.hold("k", {});
  });
  at_end({finishing}, kept, "", [=](stage_set& s) { s.final_is_kept(); });
  of_three_steps({finishing}, notice, "to a rank, with no keeper, and others can take over", [](stage_set& s) {
    s.d.add("c");
    s.d.notice("a", 30s);
  });
  at_end({finishing}, trigger_kind::late, "what came of steps was asked for", [](stage_set& s) {
    s.final_is_kept_unheard();
    s.late();
  });
  at_end({finishing}, trigger_kind::late, "", [=](stage_set& s) {
    s.d.kept_silent = true;
    s.final_is_kept();
    s.late();
  });
  // recovering
  add.of_service({recovering}, place_lost, "g serves, and may still", lose("b"));
  add.of_service({recovering}, broken, "g serves, and may still", break_of(0));
  const auto hear_a = [](stage_set& s) {
    s.d.silent = {"b"};
    s.d.reconnect("a");
  };
  add.of_service({recovering}, all_answered, "g serves, and a pipeline of it is whole", [=](stage_set& s) {
    s.d.lose("b");
    hear_a(s);
  });
  add.of_service({recovering}, trigger_kind::late, "g serves, and a pipeline of it is whole", [=](stage_set& s) {
    hear_a(s);
    s.late();
  });
  const auto die_in = [](phase where) { // before it has heard of what it decided
    return [where](stage_set& s) {
      s.bring_to(where);
      s.d.hold_back = nullptr;
      s.die();
    };
  };
  anew({recovering}, all_answered, "g had ended", [](stage_set& s) {
    s.bring_to(running);
    s.decide_for_both();
    s.d.hold_back = nullptr;
    s.die();
  });
  anew({recovering}, all_answered, "all ranks of g are here, and none is broken", die_in(running));
  anew({recovering}, all_answered, "", [](stage_set& s) {
    s.d.depth = 2;
    s.bring_to(recovering);
    s.d.lose("b");
    s.d.silent.clear();
    s.d.reconnect("a");
  });
  anew({recovering}, trigger_kind::late, "g had ended", [](stage_set& s) {
    s.bring_to(deciding);
    s.d.silent = {"b"};
    s.die();
    s.late();
  });
  add({recovering}, trigger_kind::late, "", pass_limit);
  anew({recovering}, trigger_kind::late, "all ranks of g are here, and may wait for state", [](stage_set& s) {
    s.d.keep_back<active>();
    s.two();
    s.die();
    s.d.advance(6s);
  });
  add({recovering}, place_lost, "a rank of each stage has answered", [](stage_set& s) {
    s.d.silent.erase("a");
    s.d.reconnect("a");
    s.d.say("a", failed{s.d.view().current, failure::computation, 0, "threw", {}});
  });
  add({recovering}, broken, "a rank of each stage has answered", [](stage_set& s) {
    s.d.silent.erase("a");
    s.d.reconnect("a");
    s.d.say("a", failed{s.d.view().current, failure::communication, 0, "closed", {}});
  });
  anew({recovering}, broken, "g may train", [](stage_set& s) {
    s.d.keep_back<active>();
    s.two();
    s.die();
    s.d.say("b", failed{s.d.view().current, failure::communication, 0, "closed", {}});
  });
  add({recovering}, lost, "", [](stage_set& s) {
    s.d.add("c");
    s.d.lose("c");
  });
  anew({running}, all_stopped, "", [](stage_set& s) {
    s.bring_to(stopping);
    s.d.hold_back = nullptr;
    s.die();
  });
  // any
  of_five_steps({recovering, waiting, planning, preparing, running, readying, warming, stopping, clearing, aborting,
                 deciding, activating, finishing},
                over, "", [](stage_set& s) { s.d.event(cancel_requested{}); });
}

} // namespace parcae
