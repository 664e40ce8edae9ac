"""A cluster of real processes on this machine, and `parcae web` beside it."""

import json
import pathlib
import re
import signal
import subprocess
import time


def eventually(what, condition, limit_s=60):
    """What the condition gives once that is true."""
    end = time.monotonic() + limit_s
    while True:
        try:
            found, problem = condition(), ""
        except Exception as e:  # not yet
            found, problem = None, str(e)
        if found:
            return found
        if time.monotonic() > end:
            raise AssertionError(f"not within {limit_s} s: {what} {problem}")
        time.sleep(0.05)


class Cluster:
    def __init__(self, programs, scratch):
        self.programs, self.scratch = pathlib.Path(programs), pathlib.Path(scratch)
        self.running = {}
        self.address = self.listening("manager", "127.0.0.1:0")

    def start(self, name, program, *arguments):
        log = self.scratch / f"{name}.log"
        with log.open("wb") as output:
            self.running[name] = subprocess.Popen([self.programs / program, *arguments], stdout=output,
                                                  stderr=subprocess.STDOUT, cwd=self.scratch)
        return log

    def start_listening(self, name, *arguments):
        """Gives where it listens."""
        log = self.start(name, "parcae", *arguments)
        return eventually(f"{name} listens", lambda: re.search(r"^listening on (\S+)", log.read_text(), re.M))[1]

    def listening(self, name, where):
        return self.start_listening(name, "manager", "--listen", where, "--state", self.scratch / "manager")

    def node(self, name, *arguments):
        self.start(name, "parcae-node", "--manager", self.address, "--name", name, "--cloud", "none", "--own-machine",
                   *arguments)

    def keeper(self):
        self.node("keeper", "--role", "keeper", "--state", self.scratch / "state")

    def web(self, name, *arguments, where="127.0.0.1:0"):
        return self.start_listening(name, "web", "--manager", self.address, "--listen", where, *arguments)

    def run(self, *arguments):
        return subprocess.run([self.programs / "parcae", *arguments, "--manager", self.address], check=True, text=True,
                              capture_output=True, timeout=60).stdout

    def status(self):
        return json.loads(self.run("status", "--json"))

    def job(self, number=1):
        """In detail."""
        return json.loads(self.run("status", str(number), "--json"))["jobs"][0]

    def kill(self, name, by=signal.SIGKILL):
        process = self.running.pop(name)
        process.send_signal(by)
        process.wait()

    def close(self):
        for process in self.running.values():
            process.kill()
        for process in self.running.values():
            process.wait()
