"""How fast a GPU trains, moves and recovers, each as a ratio to what it could, measured in the same run.

    speed.py kernels|training|recovery --programs FOLDER [--libraries PATH] [--device cuda:0]

A part takes less than 8 minutes and ends with a table: figure, measured, bound, and whether it holds. Status 1: a bound
is missed, or something could not be measured; 3: there is no GPU. Figures are the lines that benches print
(tests/bench/figures.hpp). With `--device cpu` all of it runs with a tiny model: to try it, the numbers say nothing.
"""

import argparse
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
BUDGET_S = 450  # of a part; what is repeated ends in time for the rest
LEAST_BYTES_FOR_XL = 79e9

# Dense bfloat16, of the makers' data sheets, in FLOP/s.
PEAKS = {"H200": 989e12, "H100 80GB HBM3": 989e12, "H100 PCIe": 756e12, "B200": 2250e12, "A100": 312e12, "L40S": 362e12}


def flops_per_token(layers, width, sequence, vocabulary):
    """Of a GPT's training, as nanoGPT counts: 6 for each parameter that is multiplied with, and attention's."""
    parameters = vocabulary * width + layers * (12 * width * width + 13 * width) + 2 * width
    return 6 * parameters + 12 * layers * width * sequence


def verdict(row):
    return "MISSED" if not row["met"] else "pass" if row["bound"] else "-"


def shown(x):
    return str(x) if not isinstance(x, (int, float)) else f"{x:.4g}" if abs(x) < 1e4 else f"{x:.0f}"


class Table:
    """Figures, in the form of tests/bench/figures.hpp. Each is also said when it comes: who ends this has those."""

    def __init__(self):
        self.rows = []

    def keep(self, row):
        self.rows.append(row)
        print(f"speed: {row['figure']}: {shown(row['value'])} ({row['bound'] or 'no bound'}) {verdict(row)}",
              file=sys.stderr, flush=True)

    def add(self, figure, value, bound="", met=True):
        self.keep({"figure": figure, "value": value, "bound": bound, "met": met})

    def at_most(self, figure, value, bound):
        self.add(figure, value, f"at most {bound:.4g}", value <= bound)

    def at_least(self, figure, value, bound):
        self.add(figure, value, f"at least {bound:.4g}", value >= bound)

    def between(self, figure, value, low, high):
        self.add(figure, value, f"{low:.4g} to {high:.4g}", low <= value <= high)

    def failed(self, figure, why):
        self.add(figure, why, "is measured", False)

    def show(self):
        """Returns whether all bounds are met."""
        rows = [("figure", "measured", "bound", "")]
        rows += [(x["figure"], shown(x["value"]), x["bound"] or "-", verdict(x)) for x in self.rows]
        widths = [max(len(row[i]) for row in rows) for i in range(3)]
        print()
        for row in rows:
            print("  ".join(x.ljust(n) for x, n in zip(row, widths)) + "  " + row[3])
        missed = sum(not x["met"] for x in self.rows)
        print(f"{len(self.rows)} figures, {missed} missed", flush=True)
        return missed == 0 and bool(self.rows)


class Trial:
    """What one part is given."""

    def __init__(self, args):
        self.programs, self.device = args.programs, args.device
        self.environment = {**os.environ, "LD_LIBRARY_PATH": args.libraries} if args.libraries else None
        self.on_gpu = args.device != "cpu"
        self.model = "gpt2" if self.on_gpu else "tiny"
        self.table, self.began = Table(), time.monotonic()
        self.facts = {"device": "", "bytes": 0}  # of the GPU, once PyTorch has said them; 0: not known

    def seconds_left(self):
        return BUDGET_S - (time.monotonic() - self.began)

    def bench(self, name, *arguments):
        return [str(self.programs / name), *map(str, arguments), "--device", self.device]

    def loop(self, *arguments):
        return [sys.executable, str(HERE / "pytorch_loop.py"), "--device", self.device, "--model", self.model,
                *map(str, arguments)]

    def environment_of(self, command):
        return None if command[0] == sys.executable else self.environment

    def output(self, command):
        """Of a program that ends well; else raises RuntimeError with one line."""
        print("speed:", " ".join(command), file=sys.stderr, flush=True)
        try:
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=max(30, self.seconds_left()),
                                  env=self.environment_of(command))
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"{pathlib.Path(command[0]).name} was not done in time") from None
        if done.returncode:
            raise RuntimeError(f"{pathlib.Path(command[0]).name} ended with status {done.returncode}")
        return done.stdout

    def take_figures(self, command):
        """All figures of a bench, met or not, into the table; returns them by name."""
        print("speed:", " ".join(command), file=sys.stderr, flush=True)
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=self.environment_of(command)) as process:
            end_after(self.seconds_left(), process)
            found = []
            for line in process.stdout:
                if line.startswith('{"figure"'):
                    found.append(json.loads(line))
                    self.table.keep(found[-1])
                else:
                    print(line, end="", file=sys.stderr, flush=True)
        if process.returncode < 0 or process.returncode and all(x["met"] for x in found):
            self.table.failed(pathlib.Path(command[0]).name, f"ended with status {process.returncode}")
        return {x["figure"]: x["value"] for x in found}


def end_after(seconds, process):
    """Nothing if it has ended then."""
    timer = threading.Timer(max(30, seconds), process.kill)
    timer.daemon = True
    timer.start()


def lines_of(text):
    return [json.loads(x) for x in text.splitlines() if x.startswith("{")]


def measured(trial, name, model, steps):
    """One measurement of training_bench: its cost by name."""
    text = trial.output(trial.bench("training_bench", 1, steps, "--model", model, "--measure", name))
    names = ("wall_ms", "quick_ms", "cpu_ms", "peak_bytes", "estimated_bytes", "protected_steps", "reserved_bytes")
    return dict(zip(names, map(float, text.split())))


def kernels(trial):
    trial.take_figures(trial.bench("kernels_bench", *([] if trial.on_gpu else ["--values", 1 << 20])))


def training(trial):
    table, steps, max_rounds = trial.table, *((30, 4) if trial.on_gpu else (3, 1))
    batch = ["--batch", 64, "--micro-batch", 16] if trial.on_gpu else ["--batch", 16, "--micro-batch", 4]
    ways = {name: lambda name=name: measured(trial, name, trial.model, steps)
            for name in ("plain", "1x1", "1x1, snapshots", "plain, exact")}
    ways["eager"] = lambda: eager(trial, batch, steps)
    costs, longest = {name: [] for name in ways}, 0  # by round
    for _ in range(max_rounds):  # in turn, as clocks and heat drift
        if trial.seconds_left() < longest + 200:
            break
        began = time.monotonic()
        for name in list(ways):
            try:
                costs[name].append(ways[name]())
            except RuntimeError as e:
                table.failed(name, str(e))
                del ways[name], costs[name]
        longest = max(longest, time.monotonic() - began)

    def ratio(a, b):
        pairs = list(zip(costs.get(a, []), costs.get(b, [])))
        return statistics.median(x["wall_ms"] / y["wall_ms"] for x, y in pairs) if pairs else float("nan")

    table.at_least("speed of 1x1 over a plain LibTorch loop with our settings", ratio("plain, exact", "1x1"), 0.97)
    # What exactness costs is no fault of what is measured.
    table.add("price of exactness: the plain loop, over that without our settings", ratio("plain, exact", "plain"))
    table.add("speed of 1x1 over that without our settings", ratio("plain", "1x1"))
    table.add("speed of 1x1 over PyTorch eager", ratio("eager", "1x1"))
    table.at_most("a snapshot in each step, over none", ratio("1x1, snapshots", "1x1"), 1.02)
    for x in costs.get("1x1, snapshots", [])[-1:]:
        table.at_least("steps that a keeper's newest version advanced meanwhile", x["protected_steps"], 1)
    for x in costs.get("1x1", [])[-1:]:
        table.add("peak memory, GB", x["peak_bytes"] / 1e9)
        table.add("memory that LibTorch reserved at most, GB", x["reserved_bytes"] / 1e9)
        table.between("peak memory over the estimate", x["peak_bytes"] / max(1, x["estimated_bytes"]), 0.9, 1.1)
    xl(trial)
    try:
        costs["torch.compile"] = [eager(trial, [*batch, "--compile"], steps)]
    except RuntimeError as e:
        table.add("torch.compile", str(e))
    costs.pop("1x1, snapshots", None)
    show_speeds(trial, {name: statistics.median(x["wall_ms"] for x in all_of) for name, all_of in costs.items()})
    table.add("rounds", max(map(len, costs.values()), default=0))


def eager(trial, arguments, steps):
    trial.facts, result = lines_of(trial.output(trial.loop(*arguments, "--steps", steps)))
    return {"wall_ms": result["step_ms"]}


def show_speeds(trial, step_ms):
    samples, sizes = (64, (12, 768, 1024, 50257)) if trial.on_gpu else (16, (2, 64, 32, 512))
    peak = next((y for x, y in PEAKS.items() if x in trial.facts["device"]), None)
    for name, ms in step_ms.items():
        tokens = samples * sizes[2] / ms * 1e3
        trial.table.add(f"{name}, tokens/s", tokens)
        if peak:
            trial.table.add(f"{name}, MFU of {peak / 1e12:.0f} TFLOP/s", tokens * flops_per_token(*sizes) / peak)


def xl(trial):
    """GPT-2 of 1.5 G parameters."""
    figure = "GPT-2 1.5B trains at 1x1: peak memory, GB"
    if 0 < trial.facts["bytes"] < LEAST_BYTES_FOR_XL:
        trial.table.add(figure, f"skipped: the GPU has {trial.facts['bytes'] / 1e9:.0f} GB")
        return
    try:
        x = measured(trial, "1x1", "gpt2-xl" if trial.on_gpu else "tiny", 3)
        trial.table.at_most(figure, x["peak_bytes"] / 1e9, 80)
        trial.table.add("GPT-2 1.5B, step, ms", x["wall_ms"])
    except RuntimeError as e:
        trial.table.failed(figure, str(e))


class Restarted:
    """PyTorch that is killed, and started again from its checkpoint, which is in the page cache."""

    def __init__(self, trial, folder):
        self.command = trial.loop("--batch", 32 if trial.on_gpu else 16, "--micro-batch", 4, "--checkpoint",
                                  pathlib.Path(folder) / "state")
        self.start()

    def start(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, text=True)
        end_after(150, self.process)

    def wait_for_step(self, least):
        for line in self.process.stdout:
            x = json.loads(line)
            if x.get("step", -1) >= least:
                return x["step"]
        raise RuntimeError(f"the loop ended with status {self.process.wait()}")

    def seconds_lost(self):
        """From SIGKILL to the end of its first step. Those that it does again, which depend on how often one writes a
        checkpoint, are left out."""
        before = self.wait_for_step(5)
        killed = time.monotonic()
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.start()
        self.wait_for_step(0)
        lost = time.monotonic() - killed
        self.wait_for_step(before + 1)
        return lost

    def end(self):
        self.process.kill()
        self.process.wait()


def recovery(trial):
    restarts, kills, notices = (3, 4, 2) if trial.on_gpu else (1, 1, 1)
    lost = []
    with tempfile.TemporaryDirectory() as folder:
        restarted = Restarted(trial, folder)
        try:
            lost = [restarted.seconds_lost() for _ in range(restarts)]
        except RuntimeError as e:
            trial.table.failed("PyTorch from SIGKILL to a step after its restart, s", str(e))
        finally:
            restarted.end()
    moved = trial.take_figures(trial.bench("data_plane_bench"))
    rate = moved.get("staged transfer, MB/s") or 0
    found = trial.take_figures(trial.bench("recovery_bench", "--model", trial.model, "--kills", kills, "--notices",
                                           notices, "--rate", rate))
    ours = found.get("kill to next commit, p50, ms")
    if lost:
        trial.table.add("PyTorch from SIGKILL to a step after its restart, s", statistics.median(lost))
    if lost and ours:
        trial.table.at_least("that over ours", 1e3 * statistics.median(lost) / ours, 10)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = {"kernels": kernels, "training": training, "recovery": recovery}
    parser.add_argument("part", choices=parts)
    parser.add_argument("--programs", type=pathlib.Path, required=True)
    parser.add_argument("--libraries", default="", help="where programs find theirs; default: as always")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--about", default="", help="what the figures are of, above their table")
    args = parser.parse_args()
    if args.device != "cpu" and not os.path.exists("/dev/nvidiactl"):
        print("run: there is no GPU", file=sys.stderr)
        return 3
    trial = Trial(args)
    try:
        parts[args.part](trial)
    except RuntimeError as e:
        trial.table.failed(args.part, str(e))
    print(f"\n{args.about}\nspeed {args.part} on {args.device}, {time.monotonic() - trial.began:.0f} s", end="")
    return 0 if trial.table.show() else 1


if __name__ == "__main__":
    sys.exit(main())
