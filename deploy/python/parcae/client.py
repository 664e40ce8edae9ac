"""A cluster and its jobs, by the HTTP interface of `parcae web`."""

from __future__ import annotations

import http.client
import json
import math
import os
import pathlib
import re
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from typing import Any, Iterable, Iterator, Mapping, Optional, Union

ENDED = ("done", "failed", "cancelled")


class Error(Exception):
    """What went wrong, as one line. `status`: HTTP's, or None if there was no answer."""

    def __init__(self, text: str, status: Optional[int] = None):
        super().__init__(text)
        self.status = status


@dataclass(frozen=True)
class Point:
    """Something of a job that is new."""

    kind: str
    """step, change, decision, event, failure"""
    at: float
    """seconds since 1970, by the manager's clock"""
    data: Mapping[str, Any]
    """as `parcae status --json` names it"""

    @property
    def steps(self) -> Optional[int]:
        """Of a step: how many are committed."""
        return self.data.get("steps") if self.kind == "step" else None

    @property
    def loss(self) -> Optional[float]:
        """Of a step: the loss of the newest step that was heard of; None while there is none."""
        return self.data.get("loss") if self.kind == "step" else None


@dataclass(frozen=True)
class Record:
    """What came of a step. A number that is not finite is NaN."""

    steps: int
    """committed with it: 1 is the first"""
    loss: float
    gradient_norm: float
    learning_rate: float
    validation_loss: Optional[float]
    """of the version that it made; None: that was not evaluated"""
    samples: int
    """trained on so far"""
    at: float
    """seconds since 1970, by the clock of the node that computed it"""


class Cluster:
    """What one `parcae web` serves. Methods may be called from any thread; each waits for its answer."""

    def __init__(self, url: str, token: Optional[str] = None, *, timeout: float = 30, cafile: Optional[str] = None):
        try:
            parts = urllib.parse.urlsplit(url)
            is_url = parts.scheme in ("http", "https") and bool(parts.netloc) and parts.port != 0
        except ValueError:
            is_url = False
        if not is_url:
            raise Error(f'"{url}" is no URL such as http://127.0.0.1:8080')
        self._url = url.rstrip("/")
        self._token = (token or "").strip()  # a file's text ends with a new line
        if not all("!" <= x <= "~" for x in self._token):
            raise Error("the token has characters that no token has: it is what the file of --token-file has")
        self._timeout = timeout
        context = ssl.create_default_context(cafile=cafile) if parts.scheme == "https" else None
        # A token is not for any server that this server, or the environment's proxy, would send it on to.
        handlers = [urllib.request.ProxyHandler({}), _NoRedirects()]
        if context:
            handlers.append(urllib.request.HTTPSHandler(context=context))
        self._opener = urllib.request.build_opener(*handlers)

    def __repr__(self) -> str:
        return f"parcae.Cluster({self._url!r})"

    def status(self) -> dict[str, Any]:
        """The newest that is known, as `parcae status --json` has it."""
        return dict(self._json("status"))

    def jobs(self) -> list[Job]:
        """Those that the manager knows, ended ones among them, by number."""
        return [Job(self, x["id"]) for x in self.status()["jobs"]]

    def job(self, number: int) -> Job:
        return Job(self, number)

    def submit(self, what: Union[str, os.PathLike[str], Mapping[str, Mapping[str, Any]]],
               settings: Optional[Mapping[str, Any]] = None, *, name: Optional[str] = None, priority: int = 0) -> Job:
        """Submits a job: a file's path, or the same as {section: {key: value}}. settings: {"job.steps": 500}. Values
        are numbers, strings, paths, lists and dicts."""
        return Job(self, self._submit(what, settings, name, priority)["job"])

    def check(self, what: Union[str, os.PathLike[str], Mapping[str, Mapping[str, Any]]],
              settings: Optional[Mapping[str, Any]] = None, *, name: Optional[str] = None) -> dict[str, Any]:
        """Whether the cluster could train it, as `parcae submit --check` says. Raises what is wrong with the job."""
        return self._submit(what, settings, name, 0, check=True)

    def preempt(self, *names: str, any: int = 0, seed: int = 0, notice: Optional[str] = None) -> list[str]:
        """Ends these instances, or that many at random; with a notice ("30s") as a cloud would. Returns the names."""
        body: dict[str, Any] = {"names": list(names)} if names else {"any": any, "seed": seed}
        if notice:
            body["notice"] = notice
        return list(self._json("preempt", json.dumps(body).encode())["names"])

    def events(self, job: Optional[int] = None) -> Iterator[tuple[str, dict[str, Any]]]:
        """(kind, data) of what happens, without end: first what the server still has. One that went away is waited for,
        and asked for what was missed; after ten minutes without it, Error."""
        newest, pause, away_since = "", 0.1, None
        while True:
            try:
                headers = {"Last-Event-ID": newest} if newest else {}
                with self._open("events" + (f"?job={job}" if job else ""), headers=headers) as answer:
                    away_since = None
                    for number, kind, data in _events_in(answer):
                        newest, pause = number, 0.1
                        yield kind, json.loads(data)
            except Error as e:
                if e.status is not None and e.status not in (502, 503, 504):
                    raise
            except ValueError:
                raise self._not_ours("events") from None
            except (OSError, http.client.HTTPException):
                pass
            away_since = away_since or time.monotonic()
            if time.monotonic() - away_since > 600:
                raise Error(f"{self._url} has not answered for ten minutes")
            time.sleep(pause)
            pause = min(2 * pause, 5)

    def _submit(self, what: Any, settings: Optional[Mapping[str, Any]], name: Optional[str], priority: int,
                check: bool = False) -> dict[str, Any]:
        query = [("set", f"{key}={_toml(value)}") for key, value in (settings or {}).items()]
        if isinstance(what, Mapping):
            body, kind = _json_of(what).encode(), "application/json"
        elif "\n" in os.fspath(what):
            raise Error("a job is the path of its file, or a dict of its sections, not the file's text")
        else:
            path = pathlib.Path(what)
            try:
                body, kind = path.read_bytes(), "application/toml"
            except OSError as e:
                raise Error(f"{path}: {e.strerror}") from None
            name = name or path.stem
        if name:
            query.append(("name", name))
        if priority:
            query.append(("priority", str(priority)))
        if check:
            query.append(("check", ""))
        return dict(self._json("jobs?" + urllib.parse.urlencode(query), body, kind))

    def _json(self, what: str, body: Optional[bytes] = None, kind: str = "application/json") -> Any:
        try:
            with self._open(what, body, {"Content-Type": kind} if body is not None else {}) as answer:
                return json.load(answer)
        except ValueError:
            raise self._not_ours(what) from None
        except (OSError, http.client.HTTPException) as e:
            raise Error(f"{self._url}: {getattr(e, 'strerror', None) or e}") from None

    def _not_ours(self, what: str) -> Error:
        return Error(f"{self._url}/api/v1/{what} answers what is no JSON: is that the URL of a `parcae web`?")

    def _open(self, what: str, body: Optional[bytes] = None, headers: Optional[Mapping[str, str]] = None,
              timeout: Optional[float] = None) -> Any:
        request = urllib.request.Request(f"{self._url}/api/v1/{what}", data=body, headers=dict(headers or {}))
        if self._token:
            request.add_header("Authorization", f"Bearer {self._token}")
        end = time.monotonic() + self._timeout
        try:
            while True:
                try:
                    return self._opener.open(request, timeout=self._timeout if timeout is None else timeout)
                except urllib.error.HTTPError as e:
                    with e:
                        if e.code != 429 or time.monotonic() > end:
                            raise Error(_line_of(e), e.code) from None
                time.sleep(0.2)  # more changes in a second than it takes: nothing was done
        except (OSError, http.client.HTTPException) as e:
            why = getattr(e, "reason", e)
            raise Error(f"{self._url}: {getattr(why, 'strerror', None) or why}") from None


class Job:
    """A job by its number. Nothing is asked until a method is called."""

    def __init__(self, cluster: Cluster, number: int):
        self.cluster = cluster
        self.number = number

    def __repr__(self) -> str:
        return f"<parcae.Job {self.number}>"

    def status(self) -> dict[str, Any]:
        """All that is known of it, as in `parcae status --json`."""
        answer = self.cluster._json(f"jobs/{self.number}")
        found = [x for x in answer["jobs"] if x["id"] == self.number]
        if not found:
            raise Error(f"there is no job {self.number}", 404)
        return dict(found[0])

    @property
    def state(self) -> str:
        """queued, running, done, failed, cancelled"""
        return str(self.status()["state"])

    def follow(self) -> Iterator[Point]:
        """What happens to it, as it comes, until it has ended. Goes on where it was when `parcae web` or the manager
        was away. Raises Error if the job fails, or there is none."""
        try:
            self.status()
        except Error as e:
            if e.status not in (None, 502, 503, 504):  # nothing would ever be told of it
                raise
        for kind, data in self.cluster.events(self.number):
            if data.get("job") != self.number:
                continue
            yield Point(kind, data["wall_us"] / 1e6, data)
            if kind == "step" and data["state"] in ENDED:
                self._refuse_failed()
                return

    def wait(self, timeout: float = math.inf) -> dict[str, Any]:
        """Its status, once it is done. Raises Error if it fails, or does not end within `timeout` seconds."""
        end, away_since = time.monotonic() + timeout, None
        while True:
            try:
                if self.state in ENDED:
                    return self._refuse_failed()
                away_since = None
            except Error as e:
                if e.status not in (None, 502, 503, 504):
                    raise
                away_since = away_since or time.monotonic()
                if time.monotonic() - away_since > 600:
                    raise
            if time.monotonic() > end:
                raise Error(f"job {self.number} has not ended within {timeout} s")
            time.sleep(min(1.0, max(0.0, end - time.monotonic())))

    def records(self, first: int = 0) -> Iterator[Record]:
        """What came of each step so far, ascending, from that step on (0 is the first), whatever was preempted."""
        while True:
            page = self.cluster._json(f"jobs/{self.number}/losses?from={first}")
            for x in page["records"]:
                loss, norm, rate = (math.nan if x[y] is None else x[y]
                                    for y in ("loss", "gradient_norm", "learning_rate"))
                yield Record(x["steps"], loss, norm, rate, x["validation_loss"], x["samples"], x["wall_ms"] / 1e3)
            if page["next"] <= first:
                return
            first = page["next"]

    def losses(self) -> list[tuple[int, float]]:
        """(steps, training loss) of every step so far, ascending."""
        return [(x.steps, x.loss) for x in self.records()]

    def validation_losses(self) -> list[tuple[int, float]]:
        """The same of each version that was evaluated."""
        return [(x.steps, x.validation_loss) for x in self.records() if x.validation_loss is not None]

    def save(self, path: Union[str, os.PathLike[str]], *, timeout: float = 600) -> pathlib.Path:
        """Writes the newest parameters that keepers hold as a safetensors file, which replaces another of that name.
        timeout: seconds for the file to begin, as keepers write a checkpoint before; and for each silence in it."""
        path = pathlib.Path(path)
        part = path.with_name(path.name + ".part")
        try:
            what = f"jobs/{self.number}/parameters"
            with self.cluster._open(what, timeout=timeout) as answer, open(part, "wb") as file:
                left = int(answer.headers["Content-Length"])
                while chunk := answer.read(1 << 20):
                    left -= file.write(chunk)
            if left:
                raise Error(f"{path}: the answer broke off")
            os.replace(part, path)
        except (OSError, http.client.HTTPException) as e:
            raise Error(f"{path}: {getattr(e, 'strerror', None) or e}") from None
        finally:
            part.unlink(missing_ok=True)
        return path

    def cancel(self) -> None:
        self.cluster._json(f"jobs/{self.number}/cancel", b"")

    def checkpoint(self) -> None:
        """Has its keepers write a checkpoint now."""
        self.cluster._json(f"jobs/{self.number}/checkpoint", b"")

    def log_to(self, writer: Any) -> None:
        """Follows it to its end and writes to anything with add_scalar(name, value, steps), such as TensorBoard's
        SummaryWriter: every step, as it comes, and its pace."""
        done = 0

        def write() -> None:
            nonlocal done
            for x in self.records(done):
                done = x.steps
                for name in ("loss", "learning_rate", "gradient_norm"):
                    writer.add_scalar(name, getattr(x, name), x.steps)
                if x.validation_loss is not None and x.steps not in evaluated:
                    evaluated.add(x.steps)
                    writer.add_scalar("validation_loss", x.validation_loss, x.steps)

        evaluated: set[int] = set()
        for point in self.follow():
            if point.kind != "step" or point.loss is None:
                continue
            write()
            if point.data["samples_per_s"] is not None:
                writer.add_scalar("samples_per_s", point.data["samples_per_s"], point.data["loss_steps"])
        write()
        for steps, loss in self.validation_losses():  # of a step that was written before it was evaluated
            if steps not in evaluated:
                writer.add_scalar("validation_loss", loss, steps)

    def _refuse_failed(self) -> dict[str, Any]:
        end = time.monotonic() + 10
        # What is told of a job may be a second old, and so older than an event.
        while (status := self.status())["state"] not in ENDED and time.monotonic() < end:
            time.sleep(0.2)
        if status["state"] != "done":
            why = f": {status['problem']}" if status["problem"] else ""
            raise Error(f"job {self.number} {status['state']}{why}")
        return status


def connect(url: Optional[str] = None, token: Optional[str] = None, *, timeout: float = 30,
            cafile: Optional[str] = None) -> Cluster:
    """The cluster that the `parcae web` at that URL serves. Without arguments: PARCAE_URL (or port 8080 of this
    machine) and PARCAE_TOKEN. timeout: seconds for an answer to begin. cafile: certificates that a server's is signed
    with, if not by one that the system trusts."""
    cluster = Cluster(url or os.environ.get("PARCAE_URL") or "http://127.0.0.1:8080",
                      token or os.environ.get("PARCAE_TOKEN"), timeout=timeout, cafile=cafile)
    cluster._json("job-keys")  # says at once what is wrong with address or token
    return cluster


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


def _events_in(lines: Iterable[bytes]) -> Iterator[tuple[str, str, str]]:
    """(id, event, data) of server-sent events; each of our server's has one line of data."""
    fields: dict[str, str] = {}
    for line in lines:
        text = line.decode().rstrip("\r\n")
        if not text:
            if "data" in fields:
                yield fields.get("id", ""), fields.get("event", ""), fields["data"]
            fields = {}
        elif not text.startswith(":"):
            name, _, value = text.partition(":")
            fields[name] = value.removeprefix(" ")


def _line_of(e: urllib.error.HTTPError) -> str:
    try:
        return str(json.loads(e.read(1 << 20))["error"])
    except (ValueError, KeyError, TypeError, OSError):
        return f"{e.url}: {e.code} {e.reason}"


def _json_of(x: Any) -> str:
    try:
        return json.dumps(x, default=os.fspath, ensure_ascii=False)
    except (TypeError, ValueError) as e:
        raise Error(f"a job's values are numbers, strings, paths, lists and dicts: {e}") from None


def _toml(x: Any) -> str:
    """As `parcae submit --set` takes it: a word such as 60s or 500 as it stands, any other string in quotes."""
    if isinstance(x, os.PathLike):
        x = os.fspath(x)
    if isinstance(x, str) and re.fullmatch(r"[A-Za-z0-9_./:~+@-]+", x):
        return x
    if isinstance(x, Mapping):
        return "{" + ", ".join(f"{_json_of(key)} = {_quoted(value)}" for key, value in x.items()) + "}"
    if isinstance(x, (list, tuple)):
        return "[" + ", ".join(map(_quoted, x)) + "]"
    return _json_of(x)


def _quoted(x: Any) -> str:
    return _json_of(x) if isinstance(x, (str, os.PathLike)) else _toml(x)
