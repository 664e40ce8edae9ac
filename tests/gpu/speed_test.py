"""speed.py with programs whose output is made up."""

import contextlib
import io
import pathlib
import sys
import tempfile
import types
import unittest
import unittest.mock

sys.dont_write_bytecode = True
import speed

# By measurement: wall, quick and CPU ms, peak and estimated bytes, protected steps.
GOOD = {"plain": "150 0 0 0 0 0 0", "1x1": "151 0 0 21e9 20e9 0 24e9", "1x1, snapshots": "152 0 0 0 0 5 0",
        "plain, exact": "155 0 0 0 0 0 0", "eager": "160", "compile": "120"}
BYTES = 150_000_000_000


class Made(speed.Trial):
    """A trial in which `costs` come of programs, and those without fail."""

    def __init__(self, costs, gpu_bytes=BYTES):
        super().__init__(types.SimpleNamespace(programs=pathlib.Path("/bin"), device="cuda:0", libraries=""))
        self.costs, self.gpu_bytes = costs, gpu_bytes

    def output(self, command):
        of_python = "compile" if "--compile" in command else "eager"
        name = command[command.index("--measure") + 1] if "--measure" in command else of_python
        if name not in self.costs:
            raise RuntimeError("ended with status 1")
        if "--measure" in command:
            return self.costs[name]
        return f'{{"device": "NVIDIA H200", "bytes": {self.gpu_bytes}}}\n{{"step_ms": {self.costs[name]}}}\n'


def judged(trial):
    """Whether all is met, and the table."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        met = trial.table.show()
    return met, out.getvalue()


class Training(unittest.TestCase):
    def run_with(self, changed, **more):
        trial = Made({name: x for name, x in {**GOOD, **changed}.items() if x}, **more)
        speed.training(trial)
        return judged(trial)

    # given: all within its bound / expected: good, with the utilisation of an H200
    def test_all_is_met(self):
        met, text = self.run_with({})
        self.assertTrue(met)
        self.assertNotIn("MISSED", text)
        self.assertIn("1x1, MFU of 989 TFLOP/s", text)
        self.assertRegex(text, "reserved at most, GB +24")

    # given: one measurement beyond its bound / expected: that row, and only that, is missed
    def test_each_bound_is_held(self):
        table = [({"plain, exact": "145 0 0 0 0 0 0"}, "plain LibTorch loop with our settings"),
                 ({"1x1, snapshots": "155 0 0 0 0 5 0"}, "a snapshot in each step"),
                 ({"1x1, snapshots": "152 0 0 0 0 0 0"}, "newest version advanced"),
                 ({"1x1": "151 0 0 25e9 20e9 0 0"}, "peak memory over the estimate")]
        for changed, row in table:
            met, text = self.run_with(changed)
            self.assertFalse(met)
            missed = [x for x in text.splitlines() if x.endswith("MISSED")]
            self.assertEqual(len(missed), 1, text)
            self.assertIn(row, missed[0])

    # given: loops that need not be exact, much faster / expected: that is shown, and nothing missed
    def test_the_price_of_exactness_is_shown(self):
        met, text = self.run_with({"plain": "100 0 0 0 0 0 0", "eager": "90"})
        self.assertTrue(met)
        self.assertRegex(text, "price of exactness.* 1\\.55")

    # given: a program that fails / expected: its bounds are missed, the others are measured
    def test_what_fails_is_missed(self):
        met, text = self.run_with({"plain": None})
        self.assertFalse(met)
        self.assertRegex(text, "plain +ended with status 1 .*MISSED")
        self.assertRegex(text, r"over a plain LibTorch loop .*pass\n(.*\n)*speed of 1x1 over PyTorch eager +1\.06")

    # given: no torch.compile, or a smaller GPU / expected: the table says so, nothing is missed
    def test_what_may_be_left_out(self):
        met, text = self.run_with({"compile": None}, gpu_bytes=24_000_000_000)
        self.assertTrue(met, text)
        self.assertIn("skipped: the GPU has 24 GB", text)


class Programs(unittest.TestCase):
    def figures_of(self, script):
        trial = Made({})
        with contextlib.redirect_stderr(io.StringIO()) as self.said:
            found = trial.take_figures(["/bin/sh", "-c", script])
        return found, judged(trial)

    # given: a program with a figure that is met / expected: status 0 is good, any other is missed
    def test_how_a_program_ends(self):
        line = """echo '{"figure": "x", "value": 1.5, "bound": "at most 2", "met": true}'"""
        self.assertEqual(self.figures_of(line)[0], {"x": 1.5})
        self.assertTrue(self.figures_of(line)[1][0])
        for end in ("exit 3", "kill -9 $$"):
            self.assertFalse(self.figures_of(f"{line}; {end}")[1][0])

    # given: a program that ends by a signal after its first figure, and waits before it does / expected: that figure is
    # said before, and is a row of the table, with the program's end
    def test_what_came_is_kept(self):
        with tempfile.TemporaryDirectory() as folder:
            before = pathlib.Path(folder) / "before"
            line = """{"figure": "x", "value": 1.5, "bound": "at most 2", "met": true}"""
            keep = speed.Table.keep

            def keep_and_let_go(table, row):
                keep(table, row)
                before.write_text(self.said.getvalue())

            with unittest.mock.patch("speed.Table.keep", keep_and_let_go):
                found, (met, text) = self.figures_of(
                    f"echo '{line}'; while ! grep -q 'x: 1.5' {before}; do sleep 0.01; done; kill -9 $$")
        self.assertEqual(found, {"x": 1.5})
        self.assertFalse(met)
        self.assertRegex(text, r"\nx +1\.5 +at most 2 +pass\n")
        self.assertRegex(text, r"\nsh +ended with status -9 +is measured +MISSED\n")

    # given: a program that says nothing / expected: an empty table is not good
    def test_no_figure(self):
        self.assertFalse(self.figures_of("true")[1][0])


class Recovery(unittest.TestCase):
    # given: PyTorch that loses 12 s, ours that lose 1 s or 2 s / expected: ten times as much is asked for; a stall is
    # held to the rate of the transfer that was measured before
    def test_lost_time(self):
        for ours_ms, good in ((1000, True), (2000, False)):
            trial, commands = Made({}), []

            def take_figures(command):
                commands.append(command)
                return {"staged transfer, MB/s": 3000, "kill to next commit, p50, ms": ours_ms}

            trial.take_figures = take_figures
            restarted = types.SimpleNamespace(seconds_lost=lambda: 12, end=lambda: None)
            with unittest.mock.patch("speed.Restarted", lambda *_: restarted):
                speed.recovery(trial)
            self.assertEqual(judged(trial)[0], good)
            self.assertEqual(commands[1][commands[1].index("--rate") + 1], "3000")


if __name__ == "__main__":
    unittest.main()
