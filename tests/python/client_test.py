"""The package parcae before a real cluster: what README.md shows, and what goes wrong."""

import contextlib
import csv
import http.server
import json
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

import parcae

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAMS = pathlib.Path(os.environ["PARCAE_PROGRAMS"])


def free_port():
    """Below those that Linux gives to connections: nobody gets it by chance before somebody listens there."""
    while True:
        port = random.randrange(16384, 32768)
        if not listens(port):
            return port


def listens(port):
    with socket.socket() as x:
        return x.connect_ex(("127.0.0.1", port)) == 0


class Processes:
    """A manager, a keeper, three workers and `parcae web`; killed in the end."""

    def __init__(self, folder):
        self.folder = folder
        self.running = {}
        self.manager, self.port = free_port(), free_port()
        self.token = folder / "token"
        self.start("manager", "parcae", "manager", "--listen", f"127.0.0.1:{self.manager}", "--state",
                   folder / "manager")
        for name in ("w0", "w1", "w2"):
            self.start_node(name)
        self.start_node("k0", "--role", "keeper", "--state", folder / "state")
        self.start_web()

    def start(self, name, program, *arguments):
        with open(self.folder / f"{name}.log", "ab") as log:
            self.running[name] = subprocess.Popen([PROGRAMS / program, *map(str, arguments)], stdout=log, stderr=log,
                                                  stdin=subprocess.DEVNULL)

    def start_node(self, name, *more):
        self.start(name, "parcae-node", "--manager", f"127.0.0.1:{self.manager}", "--name", name, *more)

    def start_web(self):
        self.start("web", "parcae", "web", "--manager", f"127.0.0.1:{self.manager}", "--listen",
                   f"127.0.0.1:{self.port}", "--token-file", self.token)
        until(lambda: self.token.exists() and listens(self.port))

    def kill(self, name):
        self.running[name].send_signal(signal.SIGKILL)
        self.running.pop(name).wait()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def status_of(self, job):
        done = subprocess.run([PROGRAMS / "parcae", "status", str(job), "--json", "--manager",
                               f"127.0.0.1:{self.manager}"], capture_output=True, check=True)
        return next(x for x in json.loads(done.stdout)["jobs"] if x["id"] == job)

    def loss_file_of(self, job):
        """Its lines, as `parcae export --curve` writes them."""
        file = self.folder / "curve.csv"
        subprocess.run([PROGRAMS / "parcae", "export", str(job), "--curve", file, "--manager",
                        f"127.0.0.1:{self.manager}"], capture_output=True, check=True)
        with open(file, newline="") as lines:
            return [(int(x["step"]), float(x["loss"]), float(x["gradient_norm"]), float(x["learning_rate"]),
                     float(x["validation_loss"]) if x["validation_loss"] else None, int(x["samples"]),
                     int(x["time_ms"]) / 1e3) for x in csv.DictReader(lines)]


@contextlib.contextmanager
def served(answers):
    """The URL of a server that is none of ours. answers: {path below /api/v1: body, or a function that gives one}"""
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            body = answers[self.path.removeprefix("/api/v1/")]
            body = body() if callable(body) else body
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            with contextlib.suppress(OSError):  # who asked has gone
                self.wfile.write(body)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def until(condition, seconds=30):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def processes(tmp_path_factory):
    x = Processes(tmp_path_factory.mktemp("cluster"))
    yield x
    for name in list(x.running):
        x.kill(name)


@pytest.fixture
def cluster(processes):
    x = parcae.connect(processes.url, processes.token.read_text().strip())

    for name in [k for k, v in processes.running.items() if v.poll() is not None]:
        processes.start_node(name)  # it was preempted

    until(lambda: has_answered(x) and len(x.status()["instances"]) == 4)
    return x


def has_answered(cluster):
    """Whether its manager has."""
    try:
        return bool(cluster.status())
    except parcae.Error as e:
        assert e.status == 503
        return False


def scalars_in(folder):
    """{tag: {step: value}}, as TensorBoard reads it."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    events = EventAccumulator(str(folder))
    events.Reload()
    return {tag: {x.step: x.value for x in events.Scalars(tag)} for tag in events.Tags()["scalars"]}


def is_read(read, job):
    """What TensorBoard has is what came of each step, and the pace that was told with it."""
    for tag in ("loss", "learning_rate", "gradient_norm", "validation_loss"):
        told = {x.steps: getattr(x, tag) for x in job.records() if getattr(x, tag) is not None}
        assert read.get(tag, {}) == pytest.approx(told, rel=1e-6)
    paces = [x.data for x in job.follow() if x.kind == "step" and x.loss is not None]
    told = {x["loss_steps"]: x["samples_per_s"] for x in paces if x["samples_per_s"] is not None}
    assert read["samples_per_s"] == pytest.approx(told, rel=1e-6)


def loaded(path):
    """The README's gpt in PyTorch, with these parameters: by their names, and none is left over."""
    import models
    from safetensors.torch import load_model
    from torch.nn import ModuleDict, ModuleList
    twin = models.Twin(layers=4, width=128, heads=4, sequence=64, vocabulary=256)
    blocks = [ModuleDict({"ln_1": x.ln_1, "attn": ModuleDict({"c_attn": x.c_attn, "c_proj": x.c_proj}),
                          "ln_2": x.ln_2, "mlp": ModuleDict({"c_fc": x.c_fc, "c_proj": x.out})}) for x in twin.blocks]
    named = ModuleDict({"transformer": ModuleDict({"wte": twin.embedding.wte, "wpe": twin.embedding.wpe,
                                                   "h": ModuleList(blocks), "ln_f": twin.head.ln_f}),
                        "lm_head": twin.head.lm_head})
    load_model(named, path)
    return twin.eval()


# given: the README's walk / expected: it runs as it stands; the job went on after the preemption, its losses are those
# that `status` has and that are in the loss file, and TensorBoard's own reader finds them
def test_readme(processes, cluster, tmp_path, monkeypatch):
    walk = (ROOT / "deploy/python/README.md").read_text()
    walk = walk[walk.index("## From a notebook"):walk.index("## parcae_model")]
    code = re.findall(r"```python\n(.*?)```", walk, re.S)
    assert len(code) == 5
    monkeypatch.setenv("PARCAE_URL", processes.url)
    monkeypatch.setenv("PARCAE_TOKEN", processes.token.read_text().strip())
    monkeypatch.chdir(tmp_path)
    (tmp_path / "deploy").symlink_to(ROOT / "deploy")
    said = {}
    for x in code[:3]:
        exec(compile(x, "README.md", "exec"), said)
    job = said["job"]
    status = processes.status_of(job.number)
    assert status["state"] == "done" and status["steps_done"] == 60
    assert len(said["preempted"]) == 1
    assert any(said["preempted"][0] in str(x) for x in status["changes"])
    losses = dict(job.losses())
    assert list(losses) == list(range(1, 61))
    assert all(losses[x["steps"]] == x["loss"] for x in status["losses"])
    assert [x.samples for x in job.records(58)] == [59 * 16, 60 * 16]
    assert [(x.steps, x.loss, x.gradient_norm, x.learning_rate, x.validation_loss, x.samples, x.at)
            for x in job.records()] == processes.loss_file_of(job.number)
    for x in code[3:]:
        exec(compile(x, "README.md", "exec"), said)

    read = scalars_in(tmp_path / "runs/gpt")
    assert len(read["loss"]) == 60
    is_read(read, job)

    import torch
    text = torch.tensor(list(pathlib.Path("/usr/share/common-licenses/GPL-3").read_bytes()[:4000]))
    samples = text[:60 * 64].view(60, 64)
    with torch.no_grad():
        logits = loaded(said["path"])(samples[:, :-1])
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), samples[:, 1:].flatten())
    assert abs(loss - job.losses()[-1][1]) < 0.5

    # One embedding and one linear layer on the letters before: better than chance, so it learnt.
    with torch.no_grad():
        loss = torch.nn.functional.cross_entropy(said["model"](text[:-1]), text[1:])
    assert loss < 5.3 and loss < torch.log(torch.tensor(256.0)) - 0.2


# given: a job that is evaluated, logged while it trains / expected: TensorBoard's own reader finds all five curves
def test_log_to(processes, cluster, tmp_path):
    from torch.utils.tensorboard import SummaryWriter
    job = cluster.submit(ROOT / "deploy/examples/gpt.toml",
                         {"job.steps": 30, "job.evaluate_every": 10, "data.validation": 32, "model.width": 32})
    with SummaryWriter(str(tmp_path)) as writer:
        job.log_to(writer)
    read = scalars_in(tmp_path)
    assert set(read) == {"loss", "learning_rate", "gradient_norm", "validation_loss", "samples_per_s"}
    assert set(read["validation_loss"]) == {10, 20, 30}
    is_read(read, job)


# given: `parcae web` that shows two clusters / expected: each is connected to by its own URL; one that it does not show
# is refused
def test_one_of_several_clusters(processes, cluster):
    other, port = free_port(), free_port()
    processes.start("west", "parcae", "manager", "--listen", f"127.0.0.1:{other}", "--state", processes.folder / "west")
    processes.start("both", "parcae", "web", "--cluster", f"east=127.0.0.1:{processes.manager}", "--cluster",
                    f"west=127.0.0.1:{other}", "--listen", f"127.0.0.1:{port}", "--token-file", processes.token)
    until(lambda: listens(other) and listens(port))
    token = processes.token.read_text().strip()
    east, west = (parcae.connect(f"http://127.0.0.1:{port}/clusters/{x}", token) for x in ("east", "west"))
    until(lambda: has_answered(east) and has_answered(west))
    assert len(east.status()["instances"]) == 4 and west.status()["instances"] == []
    with pytest.raises(parcae.Error) as e:
        parcae.connect(f"http://127.0.0.1:{port}/clusters/north", token)
    assert e.value.status == 404
    for name in ("both", "west"):
        processes.kill(name)


# given: a job that is followed, and `parcae web` killed meanwhile, then started again / expected: it is followed to its
# end, each step that is told is newer than the one before
def test_web_may_be_killed(processes, cluster):
    job = cluster.submit(ROOT / "deploy/examples/gpt.toml", {
        "job.steps": 200, "model.width": 48, "batch.global": 8, "parallel.virtual_replicas": 4})  # little work a step
    steps = []
    killed = False
    for point in job.follow():
        if point.kind != "step":
            continue
        steps.append(point.steps)
        if point.steps > 20 and not killed:
            killed = True
            processes.kill("web")
            threading.Timer(1.0, processes.start_web).start()
    assert killed and steps[-1] == 200
    assert steps == sorted(steps)
    assert job.wait(10)["state"] == "done"


# given: mistakes / expected: one line each, that says what is wrong
def test_errors(processes, cluster, tmp_path):
    token = processes.token.read_text().strip()

    def refused(what, status, said):
        with pytest.raises(parcae.Error, match=said) as e:
            what()
        assert e.value.status == status
        assert "\n" not in str(e.value) and token not in str(e.value)

    refused(lambda: parcae.connect(processes.url, "wrong"), 401, "token")
    refused(lambda: parcae.connect("nowhere"), None, "no URL")
    refused(lambda: parcae.connect(f"http://127.0.0.1:{free_port()}"), None, "refused")
    refused(lambda: parcae.connect("http://[::1"), None, "no URL")
    refused(lambda: parcae.connect(processes.url, "a\nb"), None, "characters that no token has")
    refused(lambda: cluster.job(4711).status(), 404, "4711")
    refused(lambda: next(cluster.job(4711).follow()), 404, "4711")
    refused(lambda: cluster.submit("[job]\nsteps = 1\n"), None, "not the file's text")
    refused(lambda: cluster.submit({"job": {"steps": object()}}), None, "values are numbers")
    refused(lambda: cluster.submit(tmp_path / "none.toml"), None, "No such file")
    refused(lambda: cluster.submit({"job": {"stepz": 1}}), 400, "stepz")
    refused(lambda: cluster.submit(ROOT / "deploy/examples/gpt.toml", {"job.steps": "many"}), 400, "steps")
    refused(lambda: cluster.preempt("nobody"), 409, "nobody")


# given: a token as its file has it, values of all kinds as they are in Python, in the job and beside it / expected:
# they are the job's
def test_values(processes, cluster):
    assert parcae.connect(processes.url, processes.token.read_text()).jobs() is not None
    text = pathlib.Path("/usr/share/common-licenses")
    job = {"job": {"steps": 5, "seed": 1}, "model": {"layers": 2, "width": 16, "heads": 2, "sequence": 16},
           "batch": {"global": 4, "micro": 1}, "data": {"kind": "text", "path": text / "GPL-3"}}
    assert cluster.submit(job).wait()["steps"] == 5
    del job["data"]["path"]
    name = 'it\'s "\u00e4\U0001f600" = \\1'
    status = cluster.submit(job, {
        "job.name": name, "job.reproducible": True, "job.steps": "6", "job.checkpoint_every": "60s",
        "optimizer.rate_factors": "*=0.5", "optimizer.learning_rate": 1e-7,
        "data.source": [{"path": text / "GPL-3", "weight": 2}, {"path": str(text / "GPL-2")}]}).wait()
    assert (status["name"], status["steps"]) == (name, 6)
    changes = [{"data.path": text / "GPL-3", "job.steps": x + 1} for x in range(25)]
    assert all(cluster.check(job, x)["obstacle"] == "" for x in changes)  # more than a server takes in a second


# given: a server that is no `parcae web`, or something between that answers for it / expected: one line that says so
def test_not_ours():
    with served({"job-keys": b"<html>Sign in</html>", "events": b"data: {\n\n", "status": b"\xff"}) as url:
        with pytest.raises(parcae.Error, match="no JSON: is that the URL of a `parcae web`"):
            parcae.connect(url)
        cluster = parcae.Cluster(url)
        for what in (cluster.status, lambda: next(cluster.events())):
            with pytest.raises(parcae.Error, match="no JSON"):
                what()


# given: parameters that begin to come long after other answers would be given up, as of a large model / expected: they
# are waited for, but not for longer than is asked for
def test_save_waits(tmp_path):
    given_up = threading.Event()

    def late(body):
        assert given_up.wait(30)
        return body

    with served({"status": lambda: late(b"{}"), "jobs/1/parameters": lambda: late(b"parameters")}) as url:
        cluster = parcae.Cluster(url, timeout=0.2)
        job = cluster.job(1)
        with pytest.raises(parcae.Error, match="timed out"):
            job.save(tmp_path / "model", timeout=0.1)
        threading.Timer(1.0, given_up.set).start()
        with pytest.raises(parcae.Error, match="timed out"):
            cluster.status()
        assert job.save(tmp_path / "model").read_bytes() == b"parameters"
        assert [x.name for x in tmp_path.iterdir()] == ["model"]


# given: a job that is cancelled / expected: who follows it, and who waits for it, hear it
def test_cancelled(processes, cluster):
    job = cluster.submit(ROOT / "deploy/examples/gpt.toml", {"job.steps": 100000}, name="long")
    until(lambda: job.status()["steps_done"] > 0)
    with pytest.raises(parcae.Error, match="has not ended"):
        job.wait(0.2)
    threading.Timer(0.5, job.cancel).start()
    with pytest.raises(parcae.Error, match="cancelled"):
        for _ in job.follow():
            pass
    assert job.state == "cancelled"
    assert job.number in [x.number for x in cluster.jobs()]


# given: a job that writes checkpoints nowhere else / expected: its keepers write one when they are told
def test_checkpoint(processes, cluster):
    job = cluster.submit(ROOT / "deploy/examples/gpt.toml", {"job.steps": 100000})
    until(lambda: job.status()["protected_steps"] > 0)
    job.checkpoint()
    until(lambda: job.status()["checkpoint_steps"] > 0)
    job.cancel()


# given: the package's sources / expected: mypy finds nothing in them
def test_types():
    try:
        done = subprocess.run(["mypy", "--strict", "--python-version", "3.9", "--config-file",
                               ROOT / "deploy/python/pyproject.toml", "--cache-dir", os.devnull,
                               ROOT / "deploy/python/parcae"],
                              capture_output=True, text=True, env={**os.environ, "PYTHONPATH": ""})
    except FileNotFoundError:
        pytest.skip("mypy is not installed: run deploy/setup")
    assert done.returncode == 0, done.stdout


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
