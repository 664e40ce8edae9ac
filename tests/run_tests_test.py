"""given: what ctest would say / expected: what is chosen, what was skipped and whether that is allowed"""

import argparse
import json
import pathlib
import subprocess
import tempfile
import unittest
import unittest.mock

import run_tests
from run_tests import Test

REPORT = """<testsuite>
<testcase name="a.good" status="run"/>
<testcase name="a.skips" status="notrun"><skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/><system-out>
[ RUN      ] a.skips
/x/y.cpp:3: Skipped
no IPv6 here

[  SKIPPED ] a.skips (0 ms)
</system-out></testcase>
<testcase name="script" status="notrun"><skipped message="SKIP_RETURN_CODE=77"/><system-out>first
pytest is not there
</system-out></testcase>
<testcase name="mute" status="notrun"><skipped message=""/></testcase>
<testcase name="by_hand" status="disabled"><system-out>Disabled</system-out></testcase>
<testcase name="broken" status="fail"><failure message=""/><system-out>
[ RUN      ] a.broken
/x/y.cpp:7: Failure
Expected: 1, actual: 2

[  FAILED  ] a.broken (0 ms)
</system-out></testcase>
<testcase name="crashed" status="fail"><failure message=""/><system-out>one
two
</system-out></testcase>
</testsuite>"""

TESTS = [Test("quick", {"fast"}, 1), *[Test(f"kinds/long.{i}-a", {"slow", "long"}, 10 * i) for i in range(16)]]


def options(all=False, by_turns=False):
    return argparse.Namespace(all=all, by_turns=by_turns)


def run(arguments, tests=tuple(TESTS)):
    """Names of those that ctest itself would run: its expressions are not Python's."""
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "CTestTestfile.cmake").write_text("".join(
            f'add_test([=[{x.name}]=] true)\n'
            f'set_tests_properties([=[{x.name}]=] PROPERTIES LABELS "{"+".join(x.labels)}"'
            f' FIXTURES_SETUP "{";".join(x.sets_up)}" FIXTURES_REQUIRED "{";".join(x.requires)}")\n' for x in tests))
        listed = subprocess.run(["ctest", "--test-dir", folder, "--show-only=json-v1", *arguments], check=True,
                                capture_output=True, text=True).stdout
    return {x["name"] for x in json.loads(listed)["tests"]}


class RunTests(unittest.TestCase):
    def test_tests_of_a_listing(self):
        listing = {"tests": [{"name": "a", "properties": [{"name": "LABELS", "value": ["fast+long"]},
                                                          {"name": "COST", "value": 7.5},
                                                          {"name": "FIXTURES_REQUIRED", "value": ["b"]}]},
                             {"name": "b", "properties": [{"name": "FIXTURES_SETUP", "value": ["b"]}]}]}
        self.assertEqual(list(run_tests.tests_of(listing)), [Test("a", {"fast", "long"}, 7.5, frozenset(), {"b"}),
                                                             Test("b", set(), 1, {"b"}, frozenset())])

    def test_without_all_no_long_ones_and_it_says_so(self):
        arguments, said = run_tests.choice(options(), TESTS, "0")
        self.assertEqual(run(arguments), {"quick"})
        self.assertIn("./deploy/test --all", said)

    def test_what_is_in_each_landing_is_not_in_each_run(self):
        tests = [*TESTS, Test("with.a.server", {"integration", "always"}, 40), Test("server_test_NOT_BUILT", set(), 1)]
        self.assertEqual(run(run_tests.choice(options(), tests, "0")[0], tests), {"quick"})
        for turn in range(run_tests.SHARES):
            arguments, _ = run_tests.choice(options(True, True), tests, f"{turn:x}")
            self.assertIn("with.a.server", run(arguments, tests))

    def test_what_takes_its_time_has_a_turn_unless_all_are_asked_for(self):
        slow = [Test(f"cluster.{i}", {"integration", "turn"}, 10 + i) for i in range(90)]
        tests = [*TESTS, *slow, Test("cluster.long", {"integration", "turn", "long"}, 10)]
        runs = [run(run_tests.choice(options(), tests, f"{turn:x}")[0], tests) for turn in range(run_tests.TURNS)]
        self.assertEqual(set().union(*runs), {"quick"} | {x.name for x in slow})
        self.assertEqual(sum(len(x - {"quick"}) for x in runs), len(slow))
        for turn in range(run_tests.SHARES):
            chosen = run(run_tests.choice(options(True, True), tests, f"{turn:x}")[0], tests)
            self.assertEqual(chosen & {x.name for x in slow}, runs[turn % run_tests.TURNS] - {"quick"})
        chosen = run(run_tests.choice(options(True), tests, "0")[0], tests)
        self.assertLessEqual({x.name for x in slow}, chosen)

    def test_all(self):
        arguments, _ = run_tests.choice(options(all=True), TESTS, "0")
        self.assertEqual(run(arguments), {x.name for x in TESTS})

    def test_a_label_is_left_out_as_a_word(self):
        tests = [Test(x, {x}, 1) for x in ("bench", "benches", "gpu+bench", "bench+long", "long", "prolong")]
        self.assertEqual(run(["-LE", run_tests.labelled("bench", "long")], tests), {"benches", "prolong"})

    def test_each_long_one_has_its_turn_and_others_always(self):
        runs = [run(run_tests.choice(options(True, True), TESTS, f"{turn:x}")[0]) for turn in range(run_tests.SHARES)]
        self.assertEqual(set().union(*runs), {x.name for x in TESTS})
        for i, x in enumerate(runs):
            self.assertIn("quick", x)
            for y in runs[:i]:
                self.assertEqual(x & y, {"quick"})

    def test_some_always_run_and_some_never(self):
        tests = [*TESTS, Test("each.time", {"long", "always"}, 40), Test("a.person", {"long", "by_hand"}, 40)]
        runs = [run(run_tests.choice(options(True, True), tests, f"{turn:x}")[0], tests)
                for turn in range(run_tests.SHARES)]
        self.assertEqual(set.intersection(*runs), {"quick", "each.time"})
        self.assertEqual(set().union(*runs), {x.name for x in tests} - {"a.person"})

    def test_a_long_one_runs_behind_the_fixture_that_it_requires(self):
        tests = [*TESTS, Test("sets.up", {"long"}, 60, {"built"}), Test("needs.it", {"long"}, 1, set(), {"built"}),
                 Test("needs.it.too", {"long"}, 70, set(), {"built"})]
        runs = [run(run_tests.choice(options(True, True), tests, f"{turn:x}")[0], tests)
                for turn in range(run_tests.SHARES)]
        self.assertTrue(any(x & {"needs.it", "needs.it.too"} for x in runs))
        for x in runs:
            self.assertTrue("sets.up" in x or not x & {"needs.it", "needs.it.too"}, x)

    def test_the_turn_follows_from_the_commit_and_is_said(self):
        commit = "ab" * 20
        again = run_tests.choice(options(True, True), TESTS, commit)
        self.assertEqual(again, run_tests.choice(options(True, True), TESTS, commit))
        self.assertIn(commit[:12], again[1])
        self.assertIn("long", again[1])

    def test_shares_take_about_as_long(self):
        seconds = [sum(x.seconds for x in share) for share in run_tests.shares_of(TESTS[1:])]
        self.assertLessEqual(max(seconds) - min(seconds), 20)

    def test_what_needs_what_is_absent_is_not_begun(self):
        tests = [*TESTS, Test("exports", {"fast", "python"}, 1), Test("long.exports", {"long", "python"}, 1)]
        for how in (options(), options(True), options(True, True)):
            chosen = run_tests.choice(how, tests, "3")[0]
            self.assertEqual(run_tests.without(chosen, []), chosen)
            left = run(run_tests.without(chosen, ["gpu", "python"]), tests)
            self.assertEqual(left, run(chosen, tests) - {"exports", "long.exports"})
            self.assertIn("quick", left)

    def test_python_is_absent_without_its_wheels(self):
        with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.object(run_tests, "BUILD",
                                                                                 pathlib.Path(folder)):
            torch = pathlib.Path(folder, "torch")
            torch.mkdir()
            cache = pathlib.Path(folder, "CMakeCache.txt")
            cache.write_text("")
            self.assertIn("python", dict(run_tests.absent()))
            cache.write_text(f"PARCAE_PYTHON_TORCH:PATH={torch}\n")
            self.assertIn("Python 3.11", dict(run_tests.absent())["python"])
            (torch / "complete").touch()
            self.assertNotIn("python", dict(run_tests.absent()))

    def test_skipped(self):
        self.assertEqual(list(run_tests.skipped_in(REPORT)),
                         [("a.skips", "no IPv6 here"), ("script", "pytest is not there"), ("mute", "no reason given"),
                          ("by_hand", "it is disabled")])

    def test_failed(self):
        self.assertEqual(list(run_tests.failed_in(REPORT, 2)),
                         [("broken", ["/x/y.cpp:7: Failure", "Expected: 1, actual: 2"]), ("crashed", ["one", "two"])])
        self.assertEqual(len(list(run_tests.failed_in(REPORT, tests=1))), 1)

    def test_what_may_be_skipped(self):
        names = [x for x, _ in run_tests.skipped_in(REPORT)]
        self.assertEqual(run_tests.not_allowed(names, "# none\n"), names)
        self.assertEqual(run_tests.not_allowed(names, "a.*  only here\n"), ["script", "mute", "by_hand"])


if __name__ == "__main__":
    unittest.main()
