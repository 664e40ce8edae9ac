"""Runs the tests of build/release; see deploy/test.

run_tests [--all [--by-turns]] [--no-skips] [CTEST ARGUMENTS...]

Without arguments: all tests but those labelled `always` or `long`, and of those labelled `turn` the share that the
commit's hash says; with --all these, too; with --by-turns, of the long ones and of those labelled `turn` the shares
that the hash says, so that each is run within some landings. Those labelled `by_hand` have no turn, long ones labelled
`always` are in each share.
ctest's arguments choose among all (-R chaos).

What failed says why once more before the summary: the end of a run's output is enough to know. A skipped test is named
there with its reason: what could not be set up is not taken for what passed. With --no-skips it fails the run, unless
tests/may_skip has it.
"""

import argparse
import collections
import fnmatch
import json
import os
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree as xml

ROOT = pathlib.Path(__file__).resolve().parents[1]
BUILD = ROOT / "build/release"
SHARES = 8  # of the long ones
TURNS = 3  # of those labelled `turn`
NOT_BUILT = "_NOT_BUILT"  # behind a program's name: what ctest lists in the place of its tests

Test = collections.namedtuple("Test", "name labels seconds sets_up requires", defaults=(frozenset(), frozenset()))


def labelled(*labels):
    """What ctest's -LE wants, for any of these words of a label such as slow+long. (It takes ten groups at most.)"""
    return f"(^|[+])({'|'.join(labels)})($|[+])"


def tests_of(listing):
    """Of what `ctest --show-only=json-v1` says. seconds: its COST. sets_up, requires: fixtures."""
    for x in listing["tests"]:
        properties = {p["name"]: p["value"] for p in x.get("properties", [])}
        labels = {part for label in properties.get("LABELS", []) for part in label.split("+")}
        sets_up, requires = (frozenset(properties.get(f"FIXTURES_{what}", ())) for what in ("SETUP", "REQUIRED"))
        yield Test(x["name"], labels, float(properties.get("COST", 1)), sets_up, requires)


def shares_of(tests, shares=SHARES):
    """Those that take longest first, each to the share that has least: the same for all who have the same tests."""
    result = [[] for _ in range(shares)]
    for x in sorted(tests, key=lambda x: (-x.seconds, x.name)):
        min(result, key=lambda share: sum(y.seconds for y in share)).append(x)
    return result


def without(arguments, labels):
    """ctest's arguments, less the tests with these labels."""
    return [f"{x}|{labelled(*labels)}" if labels and i > 0 and arguments[i - 1] == "-LE" else x
            for i, x in enumerate(arguments)]


def absent():
    """Labels of what this machine has not, and what to do."""
    if not pathlib.Path("/dev/nvidiactl").exists():
        yield "gpu", "no GPU"
    cache = re.search(r"^PARCAE_PYTHON_TORCH:PATH=(.*)$", (BUILD / "CMakeCache.txt").read_text(), re.M)
    if not cache or not pathlib.Path(cache[1], "complete").exists():
        yield "python", "PyTorch's Python side is not there: run deploy/setup with Python 3.11"


def skipped_in(report):
    """[(name, reason)] of a JUnit report."""
    for case in xml.fromstring(report).iter("testcase"):
        if case.get("status") == "disabled":
            yield case.get("name"), "it is disabled"
            continue
        if case.get("status") != "notrun" or case.find("skipped") is None:
            continue
        said = [x.strip() for x in (case.findtext("system-out") or "").splitlines() if x.strip()]
        # GoogleTest's reason follows the place; of others it is the last line.
        after = [said[i + 1] for i, x in enumerate(said[:-1]) if x.endswith(": Skipped")]
        yield case.get("name"), (after or said[-1:] or ["no reason given"])[0]


def failed_in(report, lines=8, tests=10):
    """[(name, lines)] of a JUnit report: from each of GoogleTest's failures on, or else the last ones."""
    failed = [x for x in xml.fromstring(report).iter("testcase") if x.get("status") == "fail"]
    for case in failed[:tests]:
        said = [x.rstrip() for x in (case.findtext("system-out") or "").splitlines() if x.strip()]
        first = next((i for i, x in enumerate(said) if x.endswith(": Failure")), max(0, len(said) - lines))
        yield case.get("name"), said[first:first + lines]


def not_allowed(skipped, may_skip):
    """Of the names those that no line of that text has."""
    patterns = [x.split()[0] for x in may_skip.splitlines() if x.strip() and not x.startswith("#")]
    return [x for x in skipped if not any(fnmatch.fnmatchcase(x, p) for p in patterns)]


def run_ctest(arguments, report):
    """Its status, and the lines of its summary, which are not printed yet."""
    command = ["ctest", "--preset", "release", f"-j{os.cpu_count() + 1}", "--output-junit", report,
               "--test-output-size-passed", "100000", "--no-label-summary", *arguments]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, errors="replace")
    summary = []
    for line in process.stdout:
        if summary or re.match(r"\d+% tests passed", line):
            summary.append(line)
        else:
            print(line, end="", flush=True)
    return process.wait(), summary


def listed(arguments):
    said = subprocess.run(["ctest", "--preset", "release", "--show-only=json-v1", *arguments], cwd=ROOT, check=True,
                          capture_output=True, text=True).stdout
    return list(tests_of(json.loads(said)))


def say(text):
    print(f"test: {text}", flush=True)


def all_of(names):
    """What ctest's -R and -E want for these."""
    return "^(" + "|".join(map(re.escape, names)) + ")$"


def choice(options, tests, commit):
    """ctest's arguments, and what to say of them."""
    long = [x for x in tests if "long" in x.labels]
    by_turns = [x for x in tests if "turn" in x.labels and not x.labels & {"always", "long"}]
    turns = shares_of(by_turns, TURNS)[int(commit, 16) % TURNS]
    waiting = [x for x in by_turns if x not in turns]
    if not options.all:
        what = (f"of {len(by_turns)} that take their time {len(turns)}, by the hash of commit {commit[:12]}; without "
                "what is long, or needs more than Parcae: `./deploy/test --all` runs it all")
        left_out = [x.name for x in waiting]
        return ["-LE", labelled("bench", "always", "long"), "-E", all_of(left_out) + "|" + NOT_BUILT + "$"], what
    if not options.by_turns:
        return ["-LE", labelled("bench")], f"all, {len(long)} long ones with them"
    turn = int(commit, 16) % SHARES
    share = shares_of([x for x in long if not x.labels & {"always", "by_hand"}])[turn]
    share += [x for x in long if "always" in x.labels]
    # ctest adds no fixture that its -E names.
    required = frozenset().union(*(x.requires for x in share))
    share += [x for x in long if x not in share and x.sets_up & required]
    left_out = [x.name for x in [*long, *waiting] if x not in share]
    names = " ".join(x.name for x in share)
    return (["-LE", labelled("bench"), "-E", all_of(left_out)],
            f"by the hash of commit {commit[:12]} {len(turns)} of {len(by_turns)} that take their time; of {len(long)} "
            f"long ones share {turn + 1} of {SHARES}: {names}")


def main(arguments):
    parser = argparse.ArgumentParser(prog="test", usage=__doc__, add_help=False, allow_abbrev=False)
    for x in ("--all", "--by-turns", "--no-skips"):
        parser.add_argument(x, action="store_true")
    options, more = parser.parse_known_args(arguments)
    if "-h" in more or "--help" in more:
        print(__doc__)
        return 0
    tests = listed(more)
    if (options.all or more) and any("long" in x.labels or x.name.endswith(NOT_BUILT) for x in tests):
        subprocess.run(["ninja", "-C", BUILD, "--quiet", "always_tests", "long_tests"], check=True)
        tests = listed(more)
    if more and not options.all:
        chosen, what = ["-LE", labelled("bench")], "those asked for"
    else:
        commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
        chosen, what = choice(options, tests, commit or "0")
    say(what)
    missing = list(absent())
    chosen = without(chosen, [label for label, _ in missing])
    report = BUILD / "Testing/tests.xml"
    status, summary = run_ctest([*chosen, *more], report)
    skipped = [(f"label {label}", why) for label, why in missing] + list(skipped_in(report.read_text()))
    for name, lines in failed_in(report.read_text()):
        say(f"failed: {name}:\n  " + "\n  ".join(x[:200] for x in lines))
    for name, why in skipped:
        say(f"skipped: {name}: {why}")
    bad = not_allowed([x for x, _ in skipped], (ROOT / "tests/may_skip").read_text()) if options.no_skips else []
    if bad:
        say(f"FAILED, as these may not be skipped here: {', '.join(bad)}")
    say(what)
    print("".join(summary), end="")
    return status or (1 if bad else 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
