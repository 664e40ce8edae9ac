// The table that the conductor runs: each of its rows is taken, from each of its phases, and leads where it says.

#include "tests/actors/conductor/stage_set.hpp"
#include "tests/support/table_checks.hpp"

namespace parcae {
namespace {

using enum phase;
using enum trigger_kind;

struct scene {
  trigger_kind on;
  std::string condition;
  phase from;
  std::function<void(stage_set&)> play; ///< after it was brought to `from`, if `bring`
  bool bring = true;
  std::uint64_t steps = 1000;
  std::uint64_t checkpoint_every = 0;
};

std::vector<scene> scenes() {
  std::vector<scene> all;
  const auto add = [&](std::initializer_list<phase> from, trigger_kind on, std::string condition,
                       std::function<void(stage_set&)> play, bool bring = true, std::uint64_t steps = 1000,
                       std::uint64_t checkpoint_every = 0) {
    for (auto x : from)
      all.push_back({on, condition, x, play, bring, steps, checkpoint_every});
  };
  const auto lose = [](const char* name) { return [name](stage_set& s) { s.d.lose(name); }; };
  const auto late = [](stage_set& s) { s.late(); };
  const auto close = [](stage_set& s) { s.close(); };
  const auto break_of = [](std::uint64_t more) {
    return [more](stage_set& s) {
      const auto g = s.d.view().current.value;
      s.d.say("b", failed{{g + more}, failure::communication, 0, "closed", {}});
    };
  };

  // waiting
  add({waiting}, due, "", [](stage_set& s) { s.two(); });
  const auto read_checkpoint = [](stage_set& s) { // all but the checkpoint is lost
    s.lose_all_but_a_checkpoint();
    s.d.advance(10s);
    s.d.kept_silent = false;
    s.join("k");
  };
  add({waiting}, all_answered, "", read_checkpoint, false, 1000, 4);
  const auto final_is_kept = [](stage_set& s) { // by a keeper that could not say so before the ranks were gone
    s.join("k");
    inventory held;
    for (std::uint32_t layer = 0; layer < 4; ++layer)
      held.push_back({layer, {1, {1}}});
    s.d.disk_problem = "disk full";
    s.d.step();
    s.d.hold("k", held);
    return held;
  };
  add(
      {waiting, planning}, kept, "the keepers hold the final version",
      [=](stage_set& s) {
        const auto held = final_is_kept(s);
        s.d.hold("k", {});
        s.d.lose("a");
        s.d.lose("b");
        s.d.advance(1s);
        s.d.hold("k", held);
      },
      false, 1);
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
  add(
      {planning}, chosen, "who holds newer state may come back",
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
      },
      false);
  add({planning}, chosen, "the checkpoint is newer, and keepers have to read it", read_checkpoint, false, 1000, 4);
  add(
      {planning}, chosen, "the checkpoint is newer, and is lost",
      [](stage_set& s) {
        s.lose_all_but_a_checkpoint();
        s.d.disks.clear();
        s.d.disk_problem = "damaged";
        s.join("k");
      },
      false, 1000, 4);
  add(
      {planning}, chosen, "the checkpoint is newer, and a part is missing",
      [](stage_set& s) {
        s.lose_all_but_a_checkpoint();
        s.join("other");
      },
      false, 1000, 4);
  add({planning}, chosen, "", [](stage_set& s) { s.d.answer_plans(); });
  const auto lose_newest = [](stage_set& s) { // the keeper has version 4, the only rank 5, and is lost
    s.d.add_keeper_and_worker();
    s.d.train(4);
    s.d.step();
    s.d.keep_back<prepared>();
    s.d.say("a", failed{s.d.view().current, failure::communication, 0, "closed", {}});
    s.d.add("b");
    s.d.advance(1s);
    s.d.lose("a");
  };
  add({planning}, chosen, "steps would be given up, and the keepers were not asked", lose_newest, false);
  add({planning}, all_answered, "", lose_newest, false);
  add({planning}, trigger_kind::late, "", late);
  add({planning}, closing, "", close);
  // preparing, transferring, activating
  add({preparing}, all_answered, "", [](stage_set& s) {
    for (const auto* name : {"a", "b"})
      s.release(name, prepared{s.newest_prepare(name).next, checksum_of(s.newest_prepare(name))});
  });
  add({transferring}, all_answered, "", [](stage_set& s) {
    const auto g = s.newest_prepare("a").next;
    for (const auto* name : {"a", "b", "c"})
      s.release(name, ready{g, {1, {1}}, 0});
  });
  add({preparing, transferring}, part_lost, "", lose("b"));
  add({preparing, transferring}, next_broken, "", break_of(1));
  add({preparing, transferring}, notice, "to a rank of g+1, and ends before the limit",
      [](stage_set& s) { s.d.notice("b", 1s); });
  add({preparing, transferring}, closing, "", close);
  add(
      {activating}, all_answered, "all ranks have stopped, with no step left",
      [](stage_set& s) {
        s.bring_to(finishing);
        s.d.add("c");
        s.d.keep_back<active>();
        s.d.notice("a", 30s); // its final version moves to c, as there is no keeper
        for (const auto* name : {"b", "c"})
          s.d.say(name, active{s.d.view().current});
      },
      false, 3);
  add({activating}, all_answered, "", [](stage_set& s) {
    for (const auto* name : {"a", "b", "c"})
      s.release(name, active{s.d.view().current});
  });
  // running
  add({running}, due, "", late);
  add({running}, chosen, "it fits, and is another or replaces who leaves", [](stage_set& s) { s.third(); });
  add(
      {running, readying}, all_stopped, "at the final version",
      [](stage_set& s) {
        for (int i = 0; i < 10 && !s.d.ended(); ++i)
          s.d.step();
      },
      true, 5);
  add({running, readying, stopping, activating}, place_lost, "", lose("b"));
  add({running, readying, stopping, activating}, broken, "", break_of(0));
  add({running}, trigger_kind::late, "", late);
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
  add({readying}, all_answered, "", [](stage_set& s) {
    for (const auto* name : {"a", "b", "c"})
      s.release(name, prepared{s.newest_prepare(name).next, checksum_of(s.newest_prepare(name))});
  });
  add({readying}, part_lost, "", lose("c"));
  add({readying}, refused, "", [](stage_set& s) {
    s.d.say("c", failed{s.newest_prepare("c").next, failure::computation, 0, "out of memory", {}});
  });
  add({readying}, trigger_kind::late, "", late);
  add({readying}, notice, "to one with a place in g or g+1, and ends before the limit",
      [](stage_set& s) { s.d.notice("c", 1s); });
  add({readying}, last_moment, "", notice_to_all);
  add({readying}, closing, "", close);
  // stopping
  add(
      {stopping}, all_answered, "at the final version",
      [](stage_set& s) {
        const auto g = s.d.view().current;
        for (const auto* name : {"a", "b"})
          s.release(name, stopped{g, {2, g}, {}});
      },
      true, 2);
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
  add({stopping}, trigger_kind::late, "", late);
  // clearing, aborting, deciding
  add({clearing, aborting, deciding}, all_answered, "", [](stage_set& s) {
    const auto g = s.newest_prepare("b").next;
    const auto now = s.d.view().now;
    s.release("b", now == deciding ? report(decided{g, {}}) : report(aborted{g, {1, g}, no_step, {}, {}}));
  });
  add({planning, clearing, aborting, deciding}, lost, "", lose("b"));
  const auto lose_stage = [](stage_set& s) { // both ranks have lost what they held
    const auto g = s.d.view().current;
    for (const auto* name : {"a", "b"})
      if (s.d.has(name))
        s.release(name, aborted{g, {}, no_step, {}, {}});
  };
  add({aborting}, all_answered, "a stage has nobody left, and the keepers were not asked", [=](stage_set& s) {
    s.d.add("k", true);
    lose_stage(s);
  });
  const auto lose_stage_at_return = [=](stage_set& s) {
    s.bring_to(running);
    s.d.step();
    s.die();
    s.d.keep_back<aborted>();
    s.d.say("b", failed{s.d.view().current, failure::communication, 0, "closed", {}});
    lose_stage(s);
  };
  add({aborting}, all_answered, "a stage has nobody left, and who has it may be dialling", lose_stage_at_return, false);
  add(
      {aborting}, trigger_kind::late, "nobody is awaited but who might have been dialling",
      [=](stage_set& s) {
        lose_stage_at_return(s);
        s.late();
      },
      false);
  const auto only_holders = [](stage_set& s) { // of two stages
    s.d.depth = 2;
    s.two();
    s.d.step();
    s.d.say("a", failed{s.d.view().current, failure::communication, 0, "closed", {}});
    s.d.advance(6s);
  };
  const std::string only_holder = "the only holder of a stage may still answer";
  add(
      {aborting}, trigger_kind::late, only_holder,
      [=](stage_set& s) {
        s.d.keep_back<aborted>();
        only_holders(s);
      },
      false);
  add(
      {deciding}, trigger_kind::late, only_holder,
      [=](stage_set& s) {
        s.d.keep_back<decided>();
        only_holders(s);
      },
      false);
  add({preparing, transferring, activating, clearing, aborting, deciding}, trigger_kind::late, "", late);
  add(
      {waiting}, trigger_kind::late, "",
      [](stage_set& s) {
        s.lose_all_but_a_checkpoint();
        s.d.keep_back<parcae::kept, restored>();
        s.join("k");
        s.d.advance(10min);
      },
      false, 1000, 4);
  // finishing
  add(
      {finishing}, place_lost, "the keepers hold the final version",
      [=](stage_set& s) {
        final_is_kept(s);
        s.d.lose("a");
      },
      false, 1);
  add({finishing}, lost, "nobody holds the final version whole", lose("b"), true, 3);
  add(
      {finishing}, kept, "nobody holds the final version whole",
      [=](stage_set& s) {
        final_is_kept(s);
        s.d.lose("a");
        s.d.lose("b");
        s.d.hold("k", {});
      },
      false, 1);
  add(
      {finishing}, kept, "", [=](stage_set& s) { final_is_kept(s); }, false, 1);
  add(
      {finishing}, notice, "to a rank, with no keeper, and others can take over",
      [](stage_set& s) {
        s.d.add("c");
        s.d.notice("a", 30s);
      },
      true, 3);
  add(
      {finishing}, trigger_kind::late, "",
      [=](stage_set& s) {
        s.d.kept_silent = true;
        final_is_kept(s);
        s.late();
      },
      false, 1);
  // recovering
  const auto die_in = [](phase where) { // before it has heard of what it decided
    return [where](stage_set& s) {
      s.bring_to(where);
      s.d.hold_back = nullptr;
      s.die();
    };
  };
  add(
      {recovering}, all_answered, "g had ended",
      [](stage_set& s) {
        s.bring_to(running);
        s.d.step();
        s.d.keep_back<decided>();
        s.d.say("b", failed{s.d.view().current, failure::communication, 0, "closed", {}});
        s.d.hold_back = nullptr;
        s.die();
      },
      false);
  add({recovering}, all_answered, "all ranks of g are here", die_in(running), false);
  add(
      {recovering}, all_answered, "",
      [](stage_set& s) {
        s.d.depth = 2;
        s.bring_to(recovering);
        s.d.lose("b");
        s.d.silent.clear();
        s.d.reconnect("a");
      },
      false);
  add(
      {recovering}, trigger_kind::late, "g had ended",
      [](stage_set& s) {
        s.bring_to(deciding);
        s.d.silent = {"b"};
        s.die();
        s.late();
      },
      false);
  add({recovering}, trigger_kind::late, "", late);
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
  add({recovering}, lost, "", [](stage_set& s) {
    s.d.add("c");
    s.d.lose("c");
  });
  add(
      {running}, all_stopped, "",
      [](stage_set& s) {
        s.bring_to(stopping);
        s.d.hold_back = nullptr;
        s.die();
      },
      false);
  // answers, and what else changes no phase
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
  add({recovering}, came, "nobody came before", recover, false);
  add({recovering}, rank_came, "", recover, false);
  add({recovering}, says_active, "g may train", [](stage_set& s) {
    s.d.silent.erase("a");
    s.d.reconnect("a");
  });
  add({recovering}, says_aborted, "of g, which had ended", recover_ended, false);
  add({recovering}, rank_heard, "of each stage, and g does not train", recover_ended, false);
  add(
      {recovering}, failed_alive, "g had ended",
      [=](stage_set& s) {
        s.bring_to(deciding);
        s.d.silent = {"b"};
        s.die();
        say_failed("b", 0, failure::computation)(s);
      },
      false);
  add({waiting}, says_restored, "", read_checkpoint, false, 1000, 4);
  const auto read_slowly = [](stage_set& s) {
    s.lose_all_but_a_checkpoint();
    s.d.keep_back<parcae::kept, restored>();
    s.join("k");
  };
  add(
      {waiting}, says_kept, "it reads a checkpoint",
      [=](stage_set& s) {
        read_slowly(s);
        s.d.say("k", parcae::kept{job_id{1}, {}, {}, {}});
      },
      false, 1000, 4);
  add({waiting}, keeper_heard, "", [](stage_set& s) { s.d.add("k", true); });
  add(
      {waiting}, newer_kept, "",
      [](stage_set& s) {
        s.d.add_keeper_and_worker();
        s.d.train(4);
        s.d.lose("a");
        s.d.hold("k", {});
      },
      false);
  add({waiting}, loading, "no slot can be used", [](stage_set& s) { s.d.add("a"); });
  add({waiting}, silent, "", [=](stage_set& s) {
    s.d.keep_back<loaded, aborted>();
    s.d.add("a");
    s.d.say("a", failed{{}, failure::computation, 0, "threw", {}});
    s.d.advance(10s);
  });
  add(
      {waiting}, returned, "what is saved has not arrived",
      [](stage_set& s) {
        s.d.add_keeper_and_worker();
        s.d.step();
        s.d.notice("a", 20s);
        s.d.advance(20s);
        s.d.reconnect("a");
      },
      false);
  add({planning}, says_aborted, "of no generation", lose_newest, false);
  add(
      {planning}, says_restored, "",
      [=](stage_set& s) {
        read_slowly(s);
        s.d.slow_planner = true;
        s.third();
        s.d.hold_back = nullptr;
        s.d.reconnect("k");
      },
      false, 1000, 4);
  add({preparing, readying}, says_prepared, "it understood another plan", say_prepared(1));
  add({preparing, readying}, says_prepared, "", say_prepared(0));
  add({preparing, readying}, unreachable, "", [=](stage_set& s) {
    const auto plan = s.newest_prepare("b");
    s.d.say("b", failed{plan.next, failure::unreachable, 0, "no route", {}});
  });
  add({transferring}, says_delivered, "", [](stage_set& s) { s.release("a", delivered{s.newest_prepare("a").next}); });
  add({transferring}, says_ready, "", [](stage_set& s) {
    s.release("a", ready{s.newest_prepare("a").next, {1, {1}}, 0});
  });
  add({clearing}, says_aborted, "of g+1", say_aborted);
  add({clearing}, failed_alive, "", say_failed("b", 1, failure::computation));
  add({activating}, says_active, "", [](stage_set& s) { s.release("a", active{s.d.view().current}); });
  add({running, recovering, readying, stopping, aborting, activating, finishing}, says_progress, "", say_progress);
  add({running}, says_evaluated, "", [](stage_set& s) {
    evaluated x;
    x.current = s.d.view().current;
    s.d.say("a", x);
  });
  add({running}, first_commit, "", say_progress);
  add({readying}, first_commit, "", first_commit_in(prepared{}), false);
  add({stopping}, first_commit, "", first_commit_in(stopped{}), false);
  add({stopping}, says_stopped, "", [](stage_set& s) {
    const auto g = s.d.view().current;
    s.release("a", stopped{g, {1, g}, {}});
  });
  add({stopping}, leaving, "", [](stage_set& s) { s.d.notice("c", 1s); });
  add({aborting}, says_aborted, "of g", say_aborted);
  add(
      {aborting}, rank_heard, "",
      [=](stage_set& s) { // while another is awaited
        s.two();
        s.third();
        s.d.keep_back<aborted>();
        s.d.lose("a");
        say_aborted(s);
      },
      false);
  add({aborting}, keeper_came, "the keepers were asked", [=](stage_set& s) {
    s.d.add("k", true);
    s.d.silent = {"k"};
    lose_stage(s);
    s.d.add("l", true);
  });
  add(
      {aborting}, rank_came, "of the manager before",
      [](stage_set& s) {
        s.two();
        s.d.step();
        s.d.silent = {"a"};
        std::mt19937_64 random(1);
        s.d.kill_manager();
        s.d.lose("b");
        s.d.restart_manager(random);
        s.d.advance(6s);
        s.d.come_back("b");
      },
      false);
  add({aborting}, asked_back, "it is a rank of g", [=](stage_set& s) {
    say_failed("b", 0, failure::computation)(s);
    s.d.advance(2s);
  });
  add({aborting, deciding}, failed_alive, "", say_failed("b", 0, failure::computation));
  add({deciding}, says_decided, "", [](stage_set& s) { s.release("b", decided{s.d.view().current, {}}); });
  add(
      {finishing}, written, "",
      [=](stage_set& s) {
        final_is_kept(s);
        s.d.disk_problem.clear();
        s.late();
      },
      false, 1);
  add(
      {finishing}, not_written, "", [=](stage_set& s) { final_is_kept(s); }, false, 1);
  // any
  add(
      {recovering, waiting, planning, preparing, running, readying, stopping, clearing, aborting, deciding,
       transferring, activating, finishing},
      over, "", [](stage_set& s) { s.d.event(cancel_requested{}); }, true, 5);
  return all;
}

TEST(transitions, each_row_is_taken_from_each_of_its_phases) {
  const auto rows = conductor::transitions();
  const auto all = scenes();
  for (std::size_t i = 0; i < rows.size(); ++i)
    for (auto from = recovering; from != ended; from = static_cast<phase>(static_cast<int>(from) + 1)) {
      if (!rows[i].from.contains(from))
        continue;
      SCOPED_TRACE(to_string(from) + ", " + to_string(rows[i].on) + ", " + rows[i].condition);
      const auto found = std::ranges::find_if(all, [&](const scene& x) {
        return x.from == from && x.on == rows[i].on && x.condition == rows[i].condition;
      });
      if (found == all.end()) {
        ADD_FAILURE() << "no scene";
        continue;
      }
      stage_set s(found->steps, found->checkpoint_every);
      if (found->bring) {
        s.bring_to(from);
        EXPECT_EQ(s.d.view().now, from);
        s.d.taken.clear();
      }
      found->play(s);
      const auto taken = std::ranges::find(s.d.taken, std::pair(i, from));
      if (taken == s.d.taken.end()) {
        ADD_FAILURE() << "not taken; now " << to_string(s.d.view().now) << ", " << s.d.view().problem;
        continue;
      }
      // Where it leads shows in the next one taken, or in the end.
      const auto next = taken + 1 == s.d.taken.end() ? s.d.view().now : (taken + 1)->second;
      EXPECT_EQ(next, rows[i].to.value_or(from));
      EXPECT_THAT(s.d.errors(), ::testing::IsEmpty());
    }
}

TEST(transitions, no_row_is_hidden_by_one_before) {
  expect_no_row_hidden(conductor::transitions());
}

TEST(transitions, are_in_the_readme) {
  expect_in_file(table_of(conductor::transitions()), "actors/conductor/README.md");
}

} // namespace
} // namespace parcae
