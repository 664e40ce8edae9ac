"""What the hooks of this folder share: a request on standard input, one answer on standard output.

A cloud has there(pool) -> names of its instances, oldest first; end(pool, names); start(pool, number, request), which
returns how many are coming and why not more. Each may raise: then nothing is known of that pool, and the others go on.
"""
import concurrent.futures
import json
import subprocess
import sys


def run(*command, text=None):
    """What the command prints. It must end: a hook has 60 s."""
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=45)
    if done.returncode != 0:
        raise RuntimeError((done.stderr.strip().splitlines() or [f"{command[0]} failed"])[-1])
    return done.stdout


def plan(pool, there):
    """(names to end, how many to start). What has not joined goes first if there are too many, the newest before; what
    trains goes only by name. What was there when this was asked for counts, though it has ended since: the manager
    sees that, too, and asks anew if it wants another one."""
    ends = [x for x in there if x in pool["release"]]
    stay = [x for x in there if x not in pool["release"]]
    waiting = [x for x in reversed(stay) if x not in pool["have"]]
    known = {*stay, *pool["have"]}
    return ends + waiting[:max(0, len(stay) - pool["want"])], max(0, pool["want"] - len(known))


def answer(cloud, pool, request):
    try:
        there = cloud.there(pool)
        ends, starts = plan(pool, there)
        if ends:
            cloud.end(pool, ends)
        coming, why = cloud.start(pool, starts, request) if starts else (0, "")
        return {"name": pool["name"], "can": len(there) - len(ends) + coming, "why": why}
    except Exception as problem:
        return {"name": pool["name"], "can": -1, "why": f"{problem}"}


def serve(cloud):
    request = json.load(sys.stdin)
    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        pools = list(threads.map(lambda pool: answer(cloud, pool, request), request["pools"]))
    json.dump({"pools": pools}, sys.stdout)
