#!/usr/bin/env python3
"""Processor time of a clean build of the programs, per thousand lines of the product, against another revision.

usage: build_bench.py REVISION [--rounds N] [--libtorch FOLDER]

Both revisions (the other one and HEAD) are built without ccache by turns, N times each (3), in scratch folders, each
round in the other order; some ten minutes a build on two cores. Fails if the quickest build of HEAD took longer per
line than the slowest of REVISION: anything less is noise.
"""

import argparse
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = ("protocols", "forecast", "planner", "gpu", "actors", "runtime")
TARGETS = ("parcae", "parcae-node")


def git(*arguments):
    return subprocess.run(["git", "-C", ROOT, *arguments], check=True, capture_output=True).stdout


def lines_of(revision):
    sources = [f"{folder}/*.{end}" for folder in FOLDERS for end in ("cpp", "hpp", "cu", "capnp")]
    counts = git("grep", "--count", "", revision, "--", *sources).decode().splitlines()
    return sum(int(x.rpartition(":")[2]) for x in counts)


def seconds_of(command, **how):
    """Processor time of a command and all it starts, and how long it took."""
    used = lambda: resource.getrusage(resource.RUSAGE_CHILDREN)
    before, began = used(), time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, **how)
    after = used()
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, time.monotonic() - began


class Checkout:
    def __init__(self, revision, folder, libtorch):
        self.revision, self.build, self.lines = revision, folder / "build/release", lines_of(revision)
        self.per_thousand_lines = []
        folder.mkdir()
        subprocess.run(["tar", "-x", "-C", folder], input=git("archive", revision), check=True)
        configure = ["cmake", "--preset", "release", f"-DPARCAE_LIBTORCH={libtorch}", "-DPARCAE_TESTS=OFF"]
        subprocess.run(configure, cwd=folder, check=True, stdout=subprocess.DEVNULL)

    def measure(self, targets):
        ninja = ["ninja", "-C", self.build]
        subprocess.run([*ninja, "-t", "clean"], check=True, stdout=subprocess.DEVNULL)
        processor, clock = seconds_of([*ninja, *targets], env={**os.environ, "CCACHE_DISABLE": "1"})
        self.per_thousand_lines.append(processor / self.lines * 1000)
        print(f"{self.revision}: {processor:.0f} s of processors, {clock:.0f} s, {self.lines} lines: "
              f"{self.per_thousand_lines[-1]:.2f} s per thousand", file=sys.stderr, flush=True)


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("revision")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--libtorch", default=pathlib.Path.home() / ".cache/parcae/libtorch-2.11.0")
    parser.add_argument("--targets", nargs="+", default=TARGETS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        before = Checkout(options.revision, pathlib.Path(scratch) / "before", options.libtorch)
        now = Checkout("HEAD", pathlib.Path(scratch) / "now", options.libtorch)
        for i in range(options.rounds):
            for x in (before, now) if i % 2 == 0 else (now, before):
                x.measure(options.targets)
    old, new = before.per_thousand_lines, now.per_thousand_lines
    print(f"{statistics.median(new) / statistics.median(old):.3f} of {options.revision}, per thousand lines")
    return 1 if min(new) > max(old) else 0


if __name__ == "__main__":
    sys.exit(main())
