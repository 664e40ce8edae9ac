"""given: benches that only print / expected: the table, the exit status and the number of runs below"""

import json
import pathlib
import stat
import tempfile
import unittest

import run_benches
from run_benches import Bench

FIGURE = '{"figure": "stall, ms", "value": 12, "bound": "at most 250", "met": true}'
BEYOND = '{"figure": "stall, ms", "value": 300, "bound": "at most 250", "met": false}'
UNKNOWN = '{"figure": "rate", "value": null, "bound": "at least 1", "met": false}'
SHOWN = '{"figure": "detection, ms", "value": 3, "bound": "", "met": true}'


class RunBenches(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self.scratch.name)
        (self.root / "tests/bench").mkdir(parents=True)
        self.bin = self.root / "build/bin"
        self.bin.mkdir(parents=True)
        self.said = []

    def tearDown(self):
        self.scratch.cleanup()

    def fake(self, name, lines, status=0, **how):
        """A bench that notes each of its runs."""
        program = self.bin / f"{name}_bench"
        printed = "".join(f"echo '{x}'\n" for x in lines)
        program.write_text(f"#!/bin/sh\necho \"$@\" >>{self.root}/{name}.runs\n{printed}exit {status}\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        return {name: Bench([f"{name}_bench 1 2"], **how)}

    def run_all(self, benches, names=(), others=None):
        """others: processor seconds of others, at the beginning and the end of each run."""
        clock = iter(others) if others else None
        return run_benches.main(list(names), self.root, self.bin, benches,
                                (lambda: next(clock)) if clock else lambda: 0, self.said.append)

    def results(self):
        return (self.root / "tests/bench/RESULTS.md").read_text()

    def runs(self, name):
        return (self.root / f"{name}.runs").read_text().splitlines()

    def test_met(self):
        self.assertEqual(self.run_all(self.fake("quick", ["some words", "{", '{"bench": 1}', FIGURE, SHOWN])), 0)
        self.assertIn("| stall, ms | 12 | at most 250 | yes |\n| detection, ms | 3 | - | - |\n", self.results())
        self.assertIn("`quick_bench 1 2` in", self.results())
        self.assertEqual(self.runs("quick"), ["1 2"])
        self.assertIn("some words", (self.root / "build/bench/quick.log").read_text())

    def test_not_met_is_named(self):
        benches = self.fake("slow", [FIGURE, BEYOND, UNKNOWN], status=1) | self.fake("quick", [FIGURE])
        self.assertEqual(self.run_all(benches), 1)
        self.assertIn("| stall, ms | 300 | at most 250 | **no** |", self.results())
        self.assertIn("bench: beyond its bound: slow: stall, ms is 300, not at most 250", self.said)
        self.assertIn("bench: beyond its bound: slow: rate is None, not at least 1", self.said)
        self.assertEqual(len(self.runs("quick")), 1)  # the others are run nevertheless

    def test_a_figure_beyond_its_bound_fails_whatever_the_status(self):
        self.assertEqual(self.run_all(self.fake("mild", [BEYOND])), 1)

    def test_crash_after_good_figures(self):
        self.assertEqual(self.run_all(self.fake("crashing", [FIGURE], status=3)), 1)
        self.assertIn("ended with status 3", self.results())

    def test_nothing_measured(self):
        self.assertEqual(self.run_all(self.fake("silent", ["{}"])), 1)
        self.assertIn("without a figure", self.results())

    def test_cannot_run_here(self):
        self.assertEqual(self.run_all(self.fake("elsewhere", [], status=77)), 0)
        self.assertIn("**Not run in full**", self.results())
        self.assertTrue(any("elsewhere skipped" in x for x in self.said))

    def test_disturbed_is_repeated_as_a_whole(self):
        self.assertEqual(self.run_all(self.fake("busy", [FIGURE]), others=[0, 100, 100, 100]), 0)
        self.assertEqual(len(self.runs("busy")), 2)
        self.assertRegex(self.results(), r"others took 0\.00 cores; before \d+\.\d\d")

    def test_disturbed_is_repeated_once_and_says_so(self):
        self.assertEqual(self.run_all(self.fake("busy", [FIGURE]), others=[0, 100, 100, 200]), 0)
        self.assertEqual(len(self.runs("busy")), 2)
        self.assertIn("**disturbed**", self.results())

    def test_good_figures_of_the_first_run_do_not_count(self):
        benches = self.fake("busy", [FIGURE])
        program = self.bin / "busy_bench"
        again = f"{self.root}/again"
        program.write_text(f"#!/bin/sh\n[ -e {again} ] && echo '{BEYOND}' || echo '{FIGURE}'\ntouch {again}\n")
        self.assertEqual(self.run_all(benches, others=[0, 100, 100, 100]), 1)

    def test_who_counts_own_processor_time_is_not_disturbed(self):
        self.assertEqual(self.run_all(self.fake("pure", [FIGURE], by_clock=False), others=[0, 100]), 0)
        self.assertEqual(len(self.runs("pure")), 1)
        self.assertNotIn("disturbed", self.results())

    def test_names_leave_other_sections_and_what_is_written_by_hand(self):
        benches = self.fake("a", [FIGURE]) | self.fake("b", [SHOWN])
        self.run_all(benches)
        file = self.root / "tests/bench/RESULTS.md"
        file.write_text("by hand, above\n" + file.read_text() + "by hand, below\n")
        before = self.results()
        self.fake("b", [FIGURE])
        self.assertEqual(self.run_all(benches, ["b"]), 0)
        self.assertEqual(len(self.runs("a")), 1)
        self.assertEqual(self.results().split("## b")[0], before.split("## b")[0])
        self.assertTrue(self.results().endswith("by hand, below\n"))
        self.assertEqual(self.results().count("stall, ms"), 2)

    def other_build(self, body):
        """Another build's bench, beside ours, which says 12; both note their turns."""
        benches = self.fake("quick", [FIGURE, SHOWN])
        ours = self.bin / "quick_bench"
        ours.write_text(ours.read_text().replace("#!/bin/sh\n", f"#!/bin/sh\necho now >>{self.root}/turns\n"))
        other = self.root / "other/bin"
        other.mkdir(parents=True)
        (other / "quick_bench").write_text(f"#!/bin/sh\necho before >>{self.root}/turns\n{body}\n")
        (other / "quick_bench").chmod(0o755)
        return benches, other

    def test_two_builds_are_compared_by_turns(self):
        said = FIGURE.replace("12", "6")
        benches, other = self.other_build(f"echo '{said}'")
        table = run_benches.compare(["quick"], self.bin, other, 3, benches, self.said.append)
        self.assertEqual((self.root / "turns").read_text().split(), ["before", "now", "now", "before", "before", "now"])
        self.assertIn("| quick: stall, ms | 6 | 12 | 2.000 | larger in 3 of 3 |", table)
        self.assertNotIn("detection", table)  # the other has no such figure

    def test_the_median_counts(self):
        benches, other = self.other_build(
            f"case $(grep -c before {self.root}/turns) in 1) x=1;; 2) x=900;; *) x=24;; esac\n"
            'echo "{\\"figure\\": \\"stall, ms\\", \\"value\\": $x, \\"bound\\": \\"\\", \\"met\\": true}"')
        self.assertIn("| 24 | 12 | 0.500 | larger in 1 of 3 |",
                      run_benches.compare(["quick"], self.bin, other, 3, benches, self.said.append))

    def test_a_build_without_the_bench_is_told_what_to_do(self):
        benches = self.fake("quick", [FIGURE])
        self.assertIsNone(run_benches.compare(["quick"], self.bin, self.root / "nowhere/bin", 1, benches,
                                              self.said.append))
        self.assertIn("nowhere benches` builds it", self.said[-1])

    def test_unknown_name(self):
        self.assertEqual(self.run_all(self.fake("a", [FIGURE]), ["nope"]), 2)
        self.assertIn("nope", self.said[0])

    def test_each_bench_is_built(self):
        """The table names programs that CMake knows."""
        here = pathlib.Path(__file__).parent
        for bench in run_benches.BENCHES.values():
            for command in bench.commands:
                self.assertTrue((here / (command.split()[0] + ".cpp")).exists(), command)

    def test_processor_time_of_a_bench_is_our_own(self):
        program = self.bin / "counting_bench"
        program.write_text(f"#!/usr/bin/env python3\nsum(range(10_000_000))\nprint('{FIGURE}')\n")
        program.chmod(0o755)
        before = run_benches.own_s()
        run_benches.run_once(Bench(["counting_bench"]), self.bin, self.root / "log")
        self.assertGreater(run_benches.own_s() - before, 0.05)


class Figures(unittest.TestCase):
    def test_only_objects_with_a_figure(self):
        text = "\n".join(["x", "3", "[]", '{"bench": 2}', FIGURE])
        self.assertEqual(list(run_benches.figures_in(text)), [json.loads(FIGURE)])


if __name__ == "__main__":
    unittest.main()
