"""Serves the page as `parcae web` does, with answers that are given to it; and makes a large cluster of a small one."""

import copy
import http.server
import json
import pathlib
import threading

TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
POLICY = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'"
FORECAST = ("forecast_mean", "forecast_low", "forecast_high")


class ApiDouble:
    """`files`: those of the page; answers: by name behind /api/v1/; `events`: [(kind, data)], told once to each.
    `late`: the name of what takes half a second. asked: the names, in order."""

    def __init__(self, files, answers, events, late=None):
        double = self
        self.end = threading.Event()
        self.asked = []

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                name = self.path.split("?")[0].removeprefix("/api/v1/")
                if name == "events":
                    return self.tell_events()
                if name in answers:
                    double.asked.append(name)
                    if name == late:
                        double.end.wait(0.5)
                    return self.answer(json.dumps(answers[name]).encode(), "application/json")
                name = self.path.lstrip("/") or "index.html"
                if name in files:
                    return self.answer(files[name].read_bytes(), TYPES[files[name].suffix])
                self.send_error(404)

            def answer(self, body, kind):
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Content-Security-Policy", POLICY)
                self.end_headers()
                self.wfile.write(body)

            def tell_events(self):
                self.close_connection = True
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.end_headers()
                after = int(self.headers.get("Last-Event-ID", "1-0").split("-")[1])
                self.wfile.write("".join(
                    f"id: 1-{i}\nevent: {kind}\ndata: {json.dumps(data)}\n\n"
                    for i, (kind, data) in enumerate(events, 1) if i > after).encode())
                double.end.wait()

            def log_message(self, *_):
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_):  # a browser hangs up when it likes
                pass

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.end.set()
        self.server.shutdown()
        self.server.server_close()


def page_files(source):
    """Of a source folder, and Debian's Chart.js."""
    files = {x.name: x for x in pathlib.Path(source, "runtime/web/page").iterdir() if x.suffix in TYPES}
    return files | {"chart.min.js": pathlib.Path("/usr/share/javascript/chart.js/chart.min.js")}


def many(rows, count, **more):
    """`count` of them, numbered anew, evenly over a day up to the last one's time."""
    result = []
    for i in range(count):
        x = copy.deepcopy(rows[i % len(rows)])
        x["number"] = i
        x["at_us"] = rows[-1]["at_us"] - (count - 1 - i) * 86_400_000_000 // count
        result.append(x | {name: f(i) for name, f in more.items()})
    return result


def extended(status):
    """A real one of a job that trains, with more instances, and with steps long before what it tells of: itself, and
    what the record of losses has."""
    status = copy.deepcopy(status)
    job = status["jobs"][0]
    worker, keeper = (next(x for x in status["instances"] if x["role"] == role and x["state"] == "alive")
                      for role in ("worker", "keeper"))
    status["instances"] += [
        worker | {"name": "spare", "incarnation": "1" * 16},
        worker | {"name": "going", "incarnation": "2" * 16, "state": "leaving", "expires_in_ms": 90_000,
                  "warning": "it may have to go"},
        worker | {"name": "gone", "incarnation": "3" * 16, "state": "lost"},
        keeper | {"name": "other-keeper", "incarnation": "4" * 16}]
    job.update(steps=2_000_000, steps_done=1_000_050)
    job["keepers"].append({"keeper": "other-keeper", "steps": 1_000_000, "layers": 2})
    job["validation_losses"] = [{"steps": 0, "loss": 5.5}, {"steps": 1_000_000, "loss": 1.23}]
    evaluated = [{"steps": x, "loss": 1.25 + 4 / x} for x in range(10_000, 1_000_000, 10_000)]
    records = [{"steps": x, "loss": 2, "gradient_norm": 1, "learning_rate": 1e-3} 
               for x in range(777, 1_000_000, 20_000)]
    job["losses"] = [{"steps": 1_000_050, "loss": 2}]
    return status, {"every": 20_000, "records": records, "validation_losses": evaluated}


def enlarged(picture, history, width=125, depth=8, event_count=10_000):
    """A real picture with a job that trains, as of a cluster with 1,000 slots after a day: answers and events."""
    picture = copy.deepcopy(picture)
    status = picture["status"]
    job = next(x for x in status["jobs"] if x["detailed"])
    worker = next(x for x in status["instances"] if x["role"] == "worker" and x["state"] != "lost")
    keepers = [x for x in status["instances"] if x["role"] == "keeper"]
    workers = [worker | {"name": f"spot-{i}", "incarnation": f"{i:016x}", "age_ms": 1000 * i,
                         "state": "leaving" if i % 50 == 0 else "alive",
                         "expires_in_ms": 90_000 if i % 50 == 0 else -1} for i in range(width * depth + 20)]
    status["instances"] = keepers + workers
    places = [workers[d * depth:(d + 1) * depth] for d in range(width)]
    job.update(state="running", phase="running", width=width, depth=depth, steps=2_000_000, steps_done=1_000_000,
               grid=[[f"{x['name']}/0" for x in row] for row in places],
               grid_incarnations=[[x["incarnation"] for x in row] for row in places],
               losses=[{"steps": 1000 * i + 1, "loss": 5 / (1 + i / 100) + i % 7 / 50} for i in range(1000)])
    job["changes"] = many(job["changes"], 1000, to=lambda i: i + 1)
    job["decisions"] = many(job["decisions"], 100)
    job["change_count"] = 2 * len(job["changes"])  # the older half is not told any more
    job["replayed_steps"] = 500_000
    points = 1024
    wall_us = [status["wall_us"] - (points - i) * 86_400_000_000 // points for i in range(points)]
    history = {name: [x[i % len(x)] for i in range(points)] for name, x in history.items()} | {"wall_us": wall_us}
    history.update(slots=[800 + i * 37 % 220 for i in range(points)], steps=[i * 1000 for i in range(points)],
                   used=[100 * (7 + i // 300) for i in range(points)], forecast_mean=[900] * points,
                   forecast_low=[820] * points,
                   forecast_high=[1000] * points, job=[job["id"]] * points)
    texts = many(status["news"], event_count, job=lambda i: 0)
    events = [("news", x | {"wall_us": status["wall_us"] - (event_count - i) * 8_640_000}) for i, x in enumerate(texts)]
    records = [{"steps": 500 * i, "loss": 5 / (1 + i / 200), "gradient_norm": 2 + i % 9 / 10, "learning_rate": 0.001}
               for i in range(1, 2001)]
    return {"picture": picture, "history": history, "access": {"may": "all"}, "clusters": [],
            f"jobs/{job['id']}/losses": {"every": 500, "records": records}}, events
