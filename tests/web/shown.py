"""What the page must show of a status, by the status alone."""

import json
import signal
import urllib.request

from api_double import ApiDouble, extended, page_files
from cluster import eventually

PARTS = ("forward", "backward", "recompute", "pipeline", "transfer", "reduction", "data", "exchange", "snapshot",
         "optimizer", "other", "core")
PHASES = ("planned_ms", "prepared_ms", "stopped_ms", "ready_ms", "active_ms", "first_commit_ms")
SECONDS = {"ms": 0.001, "s": 1, "min": 60, "h": 3600, "d": 86400}


def quantity(text):
    """Of a figure with three digits; None: there is none."""
    if text == "–":
        return None
    figure, _, power = text.partition(" ")
    return float(figure) * 1000 ** " kMGT".index(power or " ")


def seconds(text):
    """Of "12 ms", "1.2 s", "1 min 5 s"; and what one more in the last digit is."""
    if text == "–":
        return None
    words = text.split()
    last = SECONDS[words[-1]] * (0.1 if "." in words[-2] else 1)
    return sum(float(x) * SECONDS[unit] for x, unit in zip(words[::2], words[1::2])), last


def rows(browser, selector):
    """The texts of the table there."""
    return browser.js("[...document.querySelectorAll(`${arguments[0]} tbody tr`)].map(x => "
                      "[...x.children].map(y => y.innerText))", selector)


def figures_in(browser, selector, most=None):
    """{head: figures} of its rows."""
    return {x[0]: [quantity(y) for y in x[1:][:most]] for x in rows(browser, selector)}


def parts_of(job):
    return {x["slot"]: [x[f"{part}_ms"] for part in PARTS] for x in job["step_times"][:32]}


def stall_bars_of(job):
    """How long each phase took, and for how long nobody trained."""
    result = {}
    for x in [x for x in job["changes"] if not x["waited"]][-30:]:
        until, lasts = 0, []
        for phase in PHASES:
            lasts.append(max(0, x[phase] - until))
            until = max(until, x[phase])
        result[f"→{x['to']}"] = [*lasts, x["stall_ms"] if x["stall_ms"] >= 0 else None]
    return result


class Seconds(float):
    """Shown as `seconds` reads it."""


def decisions_of(job):
    """(chosen, why, stall expected, what it was) of each, the newest first; in seconds."""
    def known(ms, so=True):
        return Seconds(ms / 1000) if so and ms >= 0 else None
    return [(x["chosen"]["configuration"], f"{x['trigger']}: {x['reason']}",
             known(x["expected_ms"], x["generation"] > 0), known(x["realised_ms"])) for x in job["decisions"][:-51:-1]]


def configurations_of(job):
    return {f"{x['width']}×{x['depth']}": [x["samples_per_s"]] for x in job["configurations"]}


def evaluations_of(job, losses):
    """All that the record has, and what only the job tells: of the version before the first step, and the newest."""
    recorded = losses["validation_losses"]
    told = [x for x in job["validation_losses"] if x["steps"] == 0 or x["steps"] > recorded[-1]["steps"]]
    return {x["steps"]: x["loss"] for x in recorded + told}


def spares_of(status):
    """Names of workers that no job has a slot of."""
    used = {slot.rpartition("/")[0] for job in status["jobs"] for pipeline in job["grid"] for slot in pipeline}
    return {x["name"] for x in status["instances"]
            if x["role"] == "worker" and x["state"] != "lost" and x["name"] not in used}


def keepers_of(status, job):
    """{name: how its line begins}"""
    held = {x["keeper"]: f"step {x['steps']}, {x['layers']} of {job['layers']} layers" for x in job["keepers"]}
    return {x["name"]: held.get(x["name"], "nothing yet") for x in status["instances"]
            if x["role"] == "keeper" and x["state"] != "lost"}


def is_near(shown, told):
    """The same, but for figures, which have three digits, and seconds, which have few."""
    if isinstance(told, Seconds):
        return shown is not None and abs(shown[0] - told) <= shown[1]
    if isinstance(told, (list, tuple)):
        return len(shown) == len(told) and all(map(is_near, shown, told))
    if isinstance(told, dict):
        return shown.keys() == told.keys() and all(is_near(shown[x], told[x]) for x in told)
    if isinstance(told, (int, float)) and shown is not None:
        return abs(shown - told) <= 0.0051 * abs(told) + 0.0006
    return shown == told


class StatusIsShown:
    """Of a test with `browser`, `cluster`, `url`, `source`; `running`: a status of a job that trains."""

    def told_by_each_slot(self):
        status = self.cluster.status()
        job = status["jobs"][0]
        slots = [x for pipeline in job["grid"] for x in pipeline]
        return status if job["state"] == "running" and [x["slot"] for x in job["step_times"]] == slots else None

    def log_of_one_that_failed(self):
        b, cluster = self.browser, self.cluster
        cluster.node("e")
        eventually("it joins", lambda: "instance e joined" in str(cluster.status()["news"]))
        cluster.kill("e", signal.SIGSEGV)
        failure = eventually("it is told of", lambda: cluster.status()["failures"])[0]
        b.see("events", "e: ended by SIGSEGV")
        log = b.js("[...document.querySelectorAll('#events li')].find(x => x.innerText.includes('e: ended by')) "
                   ".querySelector('pre').textContent")
        self.assertGreater(len(failure["lines"]), 1)
        self.assertEqual(log.split("\n"), failure["lines"])
        self.assertEqual("".join(f"  {x}\n" for x in log.split("\n")), cluster.run("logs").split(" up to ")[1]
                         .partition("\n")[2])

    def same_grid(self):
        cells = "[...document.querySelectorAll('#grid tbody tr')].map(x => [...x.querySelectorAll('td')].map(y => " \
                "y.firstChild.textContent))"

        def same():
            job = self.cluster.job()
            return job["state"] != "running" or job["grid"] == self.browser.js(cells)
        eventually("the grid is that of status", same)

    def same_figures(self):
        b, job = self.browser, self.cluster.job()
        expected = {"Step": f"{job['steps_done']:,} / {job['steps']:,}", "Loss": f"{job['loss']:.4f}",
                    "Generation": str(job["generation"]), "Protected": f"step {job['protected_steps']:,}",
                    "Checkpoint": f"step {job['checkpoint_steps']:,}"}
        eventually(f"figures are {expected}", lambda: expected.items() <= b.terms("figures").items())
        lost = str(job["change_count"]), str(job["replayed_steps"])
        eventually(f"changes and replayed steps are {lost}",
                   lambda: (b.terms("losses")["Changes"], b.terms("losses")["Replayed"].split()[0]) == lost)
        newest = f"at {job['losses'][-1]['steps']}"
        eventually(f"the curve's newest is {newest}", lambda: newest in b.newest("loss"))
        b.click("#instances summary")
        names = "[...document.querySelectorAll('#instances tbody th')].map(x => x.textContent).sort()"
        eventually("all instances are listed",
                   lambda: b.js(names) == sorted(x["name"] for x in self.cluster.status()["instances"]))

    def test_9_shows_all_of_a_status(self):
        b = self.browser
        status, losses = extended(self.running)
        job = status["jobs"][0]
        with urllib.request.urlopen(f"{self.url}api/v1/history", timeout=20) as answer:
            history = json.load(answer)
        double = ApiDouble(page_files(self.source), {
            "picture": {"up": True, "why": "", "since_wall_us": 0, "age_ms": 0, "status": status}, "history": history,
            "access": {"may": "look"}, "clusters": [], f"jobs/{job['id']}/losses": losses}, [], late="picture")
        self.addCleanup(double.close)
        b.look()
        b.open(double.url)
        b.see("sentence", "job 1 shown")
        b.open_all(True)
        self.comes_to_show(lambda: figures_in(b, "#parts"), parts_of(job))
        self.comes_to_show(lambda: figures_in(b, "#stalls"), stall_bars_of(job))
        self.comes_to_show(lambda: figures_in(b, "#configurations", 1), configurations_of(job))
        self.comes_to_show(lambda: [(x[1], x[2], seconds(x[3]), seconds(x[4])) for x in rows(b, "#decisions")],
                           decisions_of(job))
        self.comes_to_show(lambda: {int(x[0]): quantity(x[2]) for x in rows(b, "#loss") if x[2] != "–"},
                           evaluations_of(job, losses))
        told = double.asked  # the history again only after ten seconds, although it was there before the picture
        self.assertNotIn("history", told[told.index("history") + 1:told.index(f"jobs/{job['id']}/losses")])
        self.assertEqual(b.text("slowest").split()[2].rstrip(","), job["slowest_slot"])
        self.same_spares(lambda: status)
        others = b.terms("others")
        self.assertIn("going (notice: 1 min", others["Spares"])
        self.assertEqual(others["Warnings"], "going: it may have to go")
        keepers = keepers_of(status, job)
        self.assertEqual(len(keepers), 2)
        for name, held in keepers.items():
            self.assertIn(f"{name}: {held}, ", others["Keepers"])
        self.assertEqual(b.messages(), [])

    def comes_to_show(self, shown, told):
        """`told`: what, or what gives it."""
        told_now = told if callable(told) else lambda: told
        self.assertGreater(len(told_now()), 0)
        try:
            eventually("the page shows it", lambda: is_near(shown(), told_now()), 20)
        except AssertionError:
            self.maxDiff = None
            self.assertEqual(shown(), told_now())

    def same_spares(self, told):
        """`told` gives a status."""
        self.comes_to_show(lambda: sorted(x.split(" (")[0] for x in self.browser.terms("others")["Spares"].split(", ")),
                           lambda: sorted(spares_of(told())) or ["none"])
