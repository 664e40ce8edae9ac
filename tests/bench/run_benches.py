"""Runs benches, holds them to their bounds and writes tests/bench/RESULTS.md; see deploy/bench.

A bench prints JSON objects, one a line. Those with a "figure" (tests/bench/figures.hpp) become its table; all it says
is in build/release/bench/NAME.log. It fails by its exit status, by a figure that is not met, or by having none; status
77: it cannot run here. One that measures by the clock while others use the machine is repeated as a whole, once.

run_benches --against BUILD [--rounds N] NAME...
compares: the benches of that build (a folder whose bin has them and the programs) and of this one by turns, N times (3)
each, each round in the other order. Prints the medians and the ratio of each figure, and writes nothing: figures of
different days say little of what changed between them.
"""

import argparse
import collections
import concurrent.futures
import datetime
import json
import os
import pathlib
import re
import resource
import statistics
import subprocess
import sys
import time

Bench = collections.namedtuple("Bench", "commands by_clock", defaults=[True])

# What fits into an hour on two cores.
BENCHES = {
    "recovery": Bench(["recovery_bench 20 15 --watched 20"]),
    "move": Bench(["move_bench 12"]),
    "drain": Bench(["drain_bench"], by_clock=False),
    "training": Bench(["training_bench 5 3"]),
    "data_plane": Bench(["data_plane_bench"]),
    "store": Bench(["store_bench"]),
    "link": Bench(["link_bench"]),
    "shared_link": Bench(["shared_link_bench"]),
    "web": Bench(["web_bench"]),
    "planner": Bench(["planner_bench"], by_clock=False),
    "prediction": Bench(["prediction_bench 2 1000"]),
    "throughput": Bench(["throughput_bench 2 gpt,small 2"]),
    "exported": Bench(["exported_bench 7 4"]),
    "serving": Bench(["serving_bench"], by_clock=False),
    "service": Bench(["service_bench gap stall overload", "service_bench latency"]),
    "conductor": Bench(["conductor_bench"], by_clock=False),
    "liveput": Bench(["liveput_bench 501 503", "liveput_bench --real-time 31 31"], by_clock=False),
}

MAX_OTHERS = 0.1  # cores
TIME_LIMIT_S = 1200  # of one command
CANNOT_RUN_HERE = 77
BEGIN, END = "<!-- written by deploy/bench -->", "<!-- end of what deploy/bench writes -->"


class Run(collections.namedtuple("Run", "figures problems others seconds skipped")):
    """One run of a bench. others: cores that other processes took meanwhile."""

    def is_good(self):
        return not self.problems and all(x["met"] for x in self.figures)


def busy_s():
    """Processor time that all processes, and the machine's host, took since the machine started."""
    user, nice, system, _, _, irq, soft_irq, steal = map(int, pathlib.Path("/proc/stat").read_text().split()[1:9])
    return (user + nice + system + irq + soft_irq + steal) / os.sysconf("SC_CLK_TCK")


def own_s():
    """The same of this process and its ended children."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(x.ru_utime + x.ru_stime for x in used)


def others_s():
    return busy_s() - own_s()


def figures_in(text):
    for line in text.splitlines():
        try:
            x = json.loads(line)
        except ValueError:
            continue
        if isinstance(x, dict) and "figure" in x:
            yield x


def run_command(command, folder, told):
    """Figures, problems, whether it cannot run here."""
    problems = []
    program, *arguments = command.split()
    if not (folder / program).exists():
        return [], [f"`{folder / program}` is not there: `ninja -C {folder.parent} benches` builds it"], False
    process = subprocess.Popen([folder / program, *arguments], stdout=subprocess.PIPE, stderr=told, text=True)
    try:
        out, _ = process.communicate(timeout=TIME_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        out, _ = process.communicate()
        problems.append(f"`{command}` was not done after {TIME_LIMIT_S} s")
    told.write(out)
    told.flush()
    found = list(figures_in(out))
    if process.returncode == CANNOT_RUN_HERE:
        return found, problems, True
    if not found:
        problems.append(f"`{command}` ended with status {process.returncode} and without a figure")
    elif process.returncode != 0 and all(x["met"] for x in found):
        problems.append(f"`{command}` ended with status {process.returncode}")
    return found, problems, False


def run_once(bench, folder, log, others=others_s):
    """Its commands one after the other; those that measure nothing by the clock side by side."""
    began, before = time.monotonic(), others()
    with open(log, "w") as told, concurrent.futures.ThreadPoolExecutor(1 if bench.by_clock else os.cpu_count()) as pool:
        done = list(pool.map(lambda command: run_command(command, folder, told), bench.commands))
    seconds = time.monotonic() - began
    return Run([x for figures, _, _ in done for x in figures], [x for _, problems, _ in done for x in problems],
               (others() - before) / seconds, seconds, any(skipped for _, _, skipped in done))


def section(name, bench, run, first, place):
    """Markdown. first: the disturbed run before this one, or None."""
    disturbed = bench.by_clock and run.others > MAX_OTHERS
    said = [place, " and ".join(f"`{x}`" for x in bench.commands) + f" in {run.seconds / 60:.1f} min",
            f"others took {run.others:.2f} cores" + (": **disturbed**" if disturbed else "")]
    if first:
        said.append(f"before {first.others:.2f}")
    lines = [f"## {name}", "", "; ".join(said) + ".", ""]
    if run.skipped:
        lines += ["**Not run in full**: the published profiles and traces are not there.", ""]
    if run.figures:
        lines += ["| figure | measured | bound | met |", "|---|---|---|---|"]
        lines += [f"| {x['figure']} | {x['value']} | {x['bound'] or '-'} | {verdict(x)} |" for x in run.figures] + [""]
    lines += [f"**Failed**: {x}." for x in run.problems] + [""] * bool(run.problems)
    return "\n".join(lines)


def verdict(figure):
    return ("yes" if figure["met"] else "**no**") if figure["bound"] else "-"


def replace_sections(file, new, order):
    """Puts the sections in `new` ({name: markdown}) between the marks; others that are there stay."""
    text = file.read_text() if file.exists() else f"# Results\n\n{BEGIN}\n{END}\n"
    before, rest = text.split(BEGIN, 1)
    old, after = rest.split(END, 1)
    sections = {re.match(r"## (\S+)", x)[1]: x.rstrip() + "\n"
                for x in re.split(r"^(?=## )", old, flags=re.M) if x.strip()}
    sections.update(new)
    body = "\n".join(sections[x].rstrip() + "\n" for x in order if x in sections)
    file.write_text(f"{before}{BEGIN}\n\n{body}\n{END}{after}")


def place_of(root):
    """When, on what, of which revision."""
    model = re.search(r"^model name\s*: (.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.M)
    git = lambda *x: subprocess.run(["git", "-C", root, *x], capture_output=True, text=True).stdout.strip()
    revision = git("rev-parse", "--short", "HEAD") or "unknown"
    changes = git("status", "--porcelain", "--untracked-files=no", "--", ":!tests/bench/RESULTS.md")
    changed = " with changes" if changes else ""
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    return f"{now}, {model[1] if model else 'unknown processor'}, {os.cpu_count()} cores, revision {revision}{changed}"


def compare(names, folder, other, rounds, benches=BENCHES, say=lambda x: print(x, file=sys.stderr, flush=True)):
    """The table; None if one of the runs failed, which is said."""
    lines = ["| figure | before | now | now over before | of rounds |", "|---|---|---|---|---|"]
    logs = folder.parent / "bench"
    logs.mkdir(exist_ok=True)
    for name in names:
        found = {which: collections.defaultdict(list) for which in ("before", "now")}
        for i in range(rounds):
            for which in ("before", "now") if i % 2 == 0 else ("now", "before"):
                run = run_once(benches[name], other if which == "before" else folder, logs / f"{name}.{which}.{i}.log")
                for x in run.problems:
                    say(f"bench: {name}, {which}: {x}")
                if run.problems or run.skipped:
                    return None
                for x in run.figures:
                    if x["value"] is not None:
                        found[which][x["figure"]].append(x["value"])
                say(f"bench: {name}, {which}, round {i + 1} of {rounds}; others took {run.others:.2f} cores")
        for figure, values in found["now"].items():
            if before := found["before"].get(figure):
                old, new = statistics.median(before), statistics.median(values)
                # Which of two that were run one after the other is the larger: chance gives half.
                larger = sum(b > a for a, b in zip(before, values))
                ratio = f"{new / old:.3f}" if old else "-"
                often = f"larger in {larger} of {len(values)}"
                lines.append(f"| {name}: {figure} | {old:.4g} | {new:.4g} | {ratio} | {often} |")
    return "\n".join(lines)


def main(names, root, folder, benches=BENCHES, others=others_s, say=lambda x: print(x, file=sys.stderr, flush=True)):
    if unknown := [x for x in names if x not in benches]:
        say(f"bench: there is no {unknown[0]}; there are {', '.join(benches)}")
        return 2
    logs = folder.parent / "bench"
    logs.mkdir(exist_ok=True)
    failed = []
    for name in names or benches:
        bench, first = benches[name], None
        say(f"bench: {name}")
        run = run_once(bench, folder, logs / f"{name}.log", others)
        if bench.by_clock and run.others > MAX_OTHERS:
            say(f"bench: {name} was disturbed, others took {run.others:.2f} cores: once more")
            first, run = run, run_once(bench, folder, logs / f"{name}.log", others)
        new = {name: section(name, bench, run, first, place_of(root))}
        replace_sections(root / "tests/bench/RESULTS.md", new, list(benches))
        failed += [f"{name}: {x}" for x in run.problems]
        failed += [f"{name}: {x['figure']} is {x['value']}, not {x['bound']}" for x in run.figures if not x["met"]]
        word = "skipped" if run.skipped and not run.figures else "met" if run.is_good() else "NOT MET"
        say(f"bench: {name} {word} in {run.seconds / 60:.1f} min; others took {run.others:.2f} cores")
    for x in failed:
        say(f"bench: beyond its bound: {x}")
    return 1 if failed else 0


if __name__ == "__main__":
    ROOT = pathlib.Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(prog="bench", usage=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--against", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if not options.against:
        sys.exit(main(options.names, ROOT, ROOT / "build/release/bin"))
    if not options.names or not set(options.names) <= set(BENCHES) or options.rounds < 1:
        parser.error(f"--against wants names, of {', '.join(BENCHES)}")
    table = compare(options.names, ROOT / "build/release/bin", options.against.resolve() / "bin", options.rounds)
    if table:
        print(table)
    sys.exit(0 if table else 1)
