"""A bare Debian 12 in a folder, and machines that boot copies of it with systemd, on a network of their own.

Needs root, iproute2, and the Debian that deploy/setup made. All that is mounted or runs ends with the process that
called `apart`.
"""

import ctypes
import os
import pathlib
import re
import shutil
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

CACHE = pathlib.Path(os.environ.get("PARCAE_CACHE") or os.path.expanduser("~/.cache/parcae"))
DEBIAN = CACHE / "debian-12.tar"
BARE = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8",
        "DEBIAN_FRONTEND": "noninteractive"}


class Failed(Exception):
    """What was expected and is not so."""


class Absent(Exception):
    """What this machine lacks for the test."""


def run(*command, limit=300, check=True, **more):
    """Its output, errors with it."""
    x = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                       errors="replace", timeout=limit, stdin=subprocess.DEVNULL, **more)
    if check and x.returncode != 0:
        raise Failed(f"{' '.join(map(str, command))[:200]}: status {x.returncode}: {x.stdout[-2000:]}")
    return x.stdout


def until(what, condition, limit=120):
    """The first value of `condition` that is true."""
    end = time.monotonic() + limit
    while not (result := condition()):
        if time.monotonic() > end:
            raise Failed(f"never: {what}")
        time.sleep(0.1)
    return result


def at_once(*steps):
    """What they return, when all have ended; the first one's failure, then."""
    with ThreadPoolExecutor(len(steps)) as threads:
        begun = [threads.submit(x) for x in steps]
    return [x.result() for x in begun]


def scratch_folder(prefix):
    """In memory if there is plenty of it: the disk would be busy for a minute with what is soon deleted."""
    path = pathlib.Path(tempfile.mkdtemp(prefix=prefix))
    available, = re.findall(r"^MemAvailable: +(\d+) kB$", pathlib.Path("/proc/meminfo").read_text(), re.M)
    if int(available) > 10 << 20:
        run("mount", "-t", "tmpfs", "-o", "size=8g", "tmpfs", path)
    return path


def apart():
    """Goes on as a process whose mounts nobody else sees, and go with it."""
    if os.geteuid() != 0:
        raise Absent("only root makes another root")
    if not shutil.which("ip"):
        raise Absent("ip is not installed")
    if not DEBIAN.exists():
        raise Absent(f"{DEBIAN} is not there: run deploy/setup")
    if "PARCAE_APART" not in os.environ:
        os.environ["PARCAE_APART"] = "yes"
        os.execvp("unshare", ["unshare", "--mount", "--propagation", "private", sys.executable, *sys.argv])


class Root:
    """A folder with a Debian."""

    def __init__(self, path):
        self.path = pathlib.Path(path)

    def make(self):
        self.path.mkdir()
        run("tar", "-C", self.path, "-xf", DEBIAN)
        slow = shutil.ignore_patterns("docker-*")  # what keeps images small has apt read all its lists each time
        for x in ("/etc/apt/apt.conf.d", "/etc/ssl/certs"):  # how this machine reaches its mirror
            if pathlib.Path(x).is_dir():
                shutil.copytree(x, self.path / x[1:], dirs_exist_ok=True, ignore_dangling_symlinks=True, ignore=slow)
        for x in ("/etc/resolv.conf", "/etc/hosts"):
            shutil.copy(x, self.path / "etc")
        run("mount", "-t", "proc", "proc", self.path / "proc")
        self.inside("apt-get", "update", "-qq")

    def copy(self, path):
        """Of one that nothing was installed into yet."""
        run("cp", "-a", "--one-file-system", self.path, path)
        run("mount", "-t", "proc", "proc", path / "proc")
        return Root(path)

    def inside(self, *command, **more):
        return run("chroot", self.path, *command, env=BARE, **more)

    def install(self, *packages):
        self.inside("apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages, limit=600)


def http_answer(process, url, host, token=""):
    """Status and text of what answers there in that process's network; 0 while nobody does."""
    def ask():  # by a thread that goes there
        with open(f"/proc/{process}/ns/net") as network:
            if ctypes.CDLL(None, use_errno=True).setns(network.fileno(), 0) != 0:
                raise Failed(f"no way into the network of {process}: {os.strerror(ctypes.get_errno())}")
        asked = urllib.request.Request(url, headers={"Host": host, "Authorization": f"Bearer {token}"})
        try:
            with urllib.request.urlopen(asked, timeout=10, context=ssl._create_unverified_context()) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as e:
            return e.code, ""
        except OSError as e:
            return 0, str(e)
    return at_once(ask)[0]


def http_status(process, url, host, token=""):
    return http_answer(process, url, host, token)[0]


# What a container's manager prepares for the systemd in it; then that is process 1.
BOOT = r"""
set -e
root=$1 name=$2
mount --bind $root $root
mount -t proc proc $root/proc
mount -t sysfs -o ro sysfs $root/sys
mount -t cgroup2 cgroup2 $root/sys/fs/cgroup
for x in run tmp dev; do mount -t tmpfs -o mode=755 tmpfs $root/$x; done
chmod 1777 $root/tmp
for x in null zero full random urandom tty; do touch $root/dev/$x; mount --bind /dev/$x $root/dev/$x; done
mkdir $root/dev/shm $root/dev/pts $root/run/before
mount -t tmpfs -o mode=1777 tmpfs $root/dev/shm
mount -t devpts -o newinstance,ptmxmode=666 devpts $root/dev/pts
ln -s pts/ptmx $root/dev/ptmx
ln -s /proc/self/fd $root/dev/fd
hostname $name
ip link set lo up
cd $root
pivot_root . run/before
umount -l run/before
mount --make-rshared /
exec env -i container=parcae PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --log-target=console
"""


NETWORK = "10.213.7.0/24"
all_machines = []
DIES_WITH_US = ["setpriv", "--pdeathsig", "KILL"]


class Machine:
    """Boots a copy of a root, with an address of its own."""

    def __init__(self, name, root, scratch, address):
        self.name, self.address = name, address
        folder = pathlib.Path(scratch) / name
        for x in ("upper", "work", "root"):
            (folder / x).mkdir(parents=True)
        self.path = folder / "root"
        run("mount", "-t", "overlay", "overlay", "-o",
            f"lowerdir={root.path},upperdir={folder / 'upper'},workdir={folder / 'work'}", self.path)
        self.group = self._group(pathlib.Path(scratch))
        self.log = (folder / "log").open("w")
        self.process = subprocess.Popen(
            ["sh", "-c", 'echo $$ >"$0/cgroup.procs" && exec "$@"', self.group, *DIES_WITH_US, "unshare", "--cgroup",
             "--mount", "--pid", "--uts", "--ipc", "--net", "--fork", "--kill-child", "bash", "-c", BOOT, "boot",
             self.path, name], stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        all_machines.append(self)
        self.init = until(f"{name} has a first process", self._first, 10)

    def _group(self, scratch):
        """A cgroup, of the unified hierarchy, which may have to be mounted."""
        tree = scratch / "cgroup"
        if not tree.is_dir():
            tree.mkdir()
            run("mount", "-t", "cgroup2", "cgroup2", tree)
        own = [x[3:] for x in pathlib.Path("/proc/self/cgroup").read_text().splitlines() if x.startswith("0::")]
        if not own:
            raise Absent("no cgroups of version 2")
        group = tree / own[0].lstrip("/") / f"parcae-{os.getpid()}-{self.name}"
        group.mkdir()
        return group

    def _first(self):
        children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        found = children.read_text().split() if children.exists() else []
        return int(found[0]) if found else None

    def boot(self):
        def state():
            if self.process.poll() is not None:
                raise Failed(f"{self.name} does not boot: {pathlib.Path(self.log.name).read_text()[-2000:]}")
            return self.say("systemctl", "is-system-running", check=False).strip() in ("running", "degraded")
        until(f"{self.name} has booted", state, 60)

    def say(self, *command, **more):
        """Runs it there."""
        return run("nsenter", "-t", self.init, "-m", "-p", "-u", "-i", "-C", "-n", "--root", "--wd=/", "env", "-C",
                   "/root", *command, env=BARE, **more)

    def journal(self):
        """The last of it, if it is there still."""
        if self.process.poll() is not None:
            return "it is no more"
        return self.say("journalctl", "--no-pager", "-o", "short-monotonic", "-n", "60", check=False)

    def vanish(self):
        """As a machine without power: no process there ends by itself."""
        self.process.kill()
        self.process.wait()

    def forget(self):
        if self.process.poll() is None:
            self.vanish()

        def empty(group):
            try:
                group.rmdir()
            except OSError:  # its processes are still ending
                return False
            return True
        for x in sorted(self.group.rglob("*/"), reverse=True) + [self.group]:
            until(f"nothing is left in {x}", lambda: empty(x), 10)


def end_all(scratch):
    """Also the folder, which has no mounts any more then."""
    for x in all_machines:
        x.forget()
    mounts = [x.split()[1] for x in pathlib.Path("/proc/self/mounts").read_text().splitlines()]
    for x in reversed([x for x in mounts if f"{x}/".startswith(f"{scratch}/")]):
        run("umount", "--lazy", x)
    run("rm", "-rf", scratch)  # Python takes three times as long for it


def connect(first, second):
    """One Ethernet that both are on, and nobody else. It goes with either of them; the other's address stays. If eth0
    had none, too, CAF would not see its MAC address, and take a process of one for the other's with that number."""
    there = ["nsenter", "-t", str(first.init), "--net"]
    run(*there, "ip", "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", str(second.init))
    for x in (first, second):
        there = ["nsenter", "-t", str(x.init), "--net", "ip"]
        for device in ("lo", "eth0"):
            run(*there, "address", "add", f"{x.address}/32", "dev", device)
        run(*there, "link", "set", "eth0", "up")
        run(*there, "route", "add", NETWORK, "dev", "eth0", "src", x.address)
