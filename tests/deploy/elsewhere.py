"""What is in deploy/package for other ways in, run as far as one machine can: see package_test."""

import hashlib
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys

from machines import BARE, CACHE, DIES_WITH_US, Absent, Failed, Machine, Root, http_status, run, until

PACKAGE = pathlib.Path(__file__).resolve().parents[2] / "deploy/package"
USER = 4242

try:
    import yaml
except ImportError:  # of what deploy/setup has for other tests
    sys.path.append(str(CACHE / "python-torch-2.11.0"))
    try:
        import yaml
    except ImportError:
        raise Absent("PyYAML is not there") from None


def alive(status):
    return {x["name"] for x in json.loads(status)["instances"] if x["state"] == "alive"}


def make_certificates(say):
    for x in ((), ("--fleet", "spot"), ("--add", "web", "--role", "client")):
        say("env", "-C", "/root", "parcae", "init", "certificates", *x)


def user_data(root, scratch, package):
    """A machine that is given both user data, with what they want put in: its manager, keeper and worker meet."""
    machine = Machine("cloud", root, scratch, "10.213.7.3")
    (machine.path / "etc/hosts").write_text("127.0.0.1 localhost manager.example\n")
    shutil.copy(package, machine.path / "root/parcae.deb")
    machine.boot()
    make_certificates(machine.say)
    certificates = machine.path / "root/certificates"
    for kind in ("manager", "node"):
        text = (PACKAGE / f"cloud-init-{kind}.yaml").read_text()
        if not text.startswith("#cloud-config\n"):
            raise Failed(f"cloud-init would not take cloud-init-{kind}.yaml")
        data = yaml.safe_load(text.replace("https://packages.example/", "file:///root/"))
        if set(data) != {"write_files", "runcmd"}:
            raise Failed(f"cloud-init-{kind}.yaml has {set(data)}")
        for x in data["write_files"]:
            path = machine.path / x["path"].lstrip("/")
            path.parent.mkdir(exist_ok=True)
            path.write_text((certificates / path.name).read_text() if x["content"] == "THE BUNDLE\n" else x["content"])
            path.chmod(int(x["permissions"], 8))
        for command in data["runcmd"]:
            machine.say(*command)
    ask = ("parcae", "status", "--json", "--manager", "manager.example:4242", "--bundle", "certificates/client.pem")
    until("keeper and worker", lambda: len(x := alive(machine.say(*ask))) == 2 and "keeper" in x and
          any(y.startswith("spot-") for y in x), 30)
    machine.vanish()


def schema(container):
    """The user data, by cloud-init itself."""
    for x in sorted(PACKAGE.glob("cloud-init-*.yaml")):
        shutil.copy(x, container.path / "root")
        container.inside("cloud-init", "schema", "--config-file", f"/root/{x.name}")


def instructions():
    text = re.sub(r"\\\n\s*", " ", (PACKAGE / "Containerfile").read_text())
    return [x.split(None, 1) for x in text.splitlines() if x and not x.startswith("#")]


# What the Containerfile builds on is this Debian, as no registry is asked; and no kernel's help, which a container may
# lack, but for a chroot.
BUILD = r"""
set -e
cd /root
export BUILDAH_ISOLATION=chroot
mkdir -p /etc/containers
echo '{"default": [{"type": "insecureAcceptAnything"}]}' >/etc/containers/policy.json
echo 'unqualified-search-registries = ["localhost"]' >/etc/containers/registries.conf
buildah tag "$(buildah pull -q oci:base)" localhost/debian:12-slim
rm -r base
buildah build -q --pull-never --network host -t parcae -f Containerfile /packages >/dev/null
built=$(buildah from --pull-never parcae)
root=$(buildah mount $built)
# By a file, as buildah may lose what a program prints that ends at once.
buildah run $built -- sh -c 'parcae --version >/tmp/version'
cat "$root/tmp/version"
rm "$root/tmp/version"
buildah inspect --format 'user {{.OCIv1.Config.User}} in {{.OCIv1.Config.WorkingDir}}{{println}}' $built
echo "$root"
"""


def write_base(root, folder):
    """An image of that root without what apt fetched, a folder in OCI's layout: `buildah commit` would write and hash
    all of it several times."""
    blobs = folder / "blobs/sha256"
    blobs.mkdir(parents=True)

    def described(kind, path):
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        size = path.stat().st_size
        path.rename(blobs / digest)
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{digest}", "size": size}

    def written(content):
        path = folder / "written"
        path.write_text(json.dumps(content))
        return path
    run("tar", "-C", root.path, "--one-file-system", "--exclude=./var/lib/apt/lists/*", "--exclude=./var/cache/apt/*",
        "-cf", folder / "tar", ".")
    layer = described("layer.v1.tar", folder / "tar")
    config = described("config.v1+json", written({
        "architecture": "amd64", "os": "linux", "config": {"Env": [f"PATH={BARE['PATH']}"]},
        "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]}}))
    manifest = described("manifest.v1+json", written({"schemaVersion": 2, "config": config, "layers": [layer]}))
    (folder / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [manifest]}))
    (folder / "oci-layout").write_text(json.dumps({"imageLayoutVersion": "1.0.0"}))


def image(builder, package):
    """The Containerfile, by buildah, in a Debian that has nothing else: a root that is the image's."""
    base = builder.path.parent / "base"
    write_base(builder, base)
    shutil.move(base, builder.path / "root")
    shutil.copy(PACKAGE / "Containerfile", builder.path / "root")
    builder.install("buildah")
    (builder.path / "packages").mkdir()
    mounts = (("--rbind", builder.path, builder.path),  # what it mounts within has to be within a mount
              ("--bind", package.parent, builder.path / "packages"),
              ("-t", "tmpfs", "tmpfs", builder.path / "run"))
    for x in mounts:
        run("mount", *x)
    said = builder.inside("bash", "-c", BUILD, limit=600).splitlines()
    if not said[-3].startswith("parcae ") or said[-2] != f"user {USER}:{USER} in /var/lib/parcae":
        raise Failed(f"the image says {said}")
    result = Root(builder.path / said[-1].lstrip("/"))
    run("mount", "-t", "proc", "proc", result.path / "proc")
    start = command_of(result.path, json.loads(dict(instructions())["CMD"]))
    if "Subcommands:" not in run(*start):
        raise Failed("the image does not help")
    return result


def command_of(root, arguments):
    """As a container of the image begins."""
    given = dict(instructions())
    environment = shlex.split(given["ENV"])
    if given["USER"] != f"{USER}:{USER}":
        raise Failed(f"the image is for {given['USER']}")
    return ["chroot", f"--userspec={given['USER']}", root, "env", "-i", "-C", given["WORKDIR"], f"PATH={BARE['PATH']}",
            *environment, *json.loads(given["ENTRYPOINT"]), *arguments]


POD = r"""
set -e
root=$1 secrets=$2 mounts=$3 number=$4
shift 4
# CAF knows a process by its machine's addresses and its number. Pods have addresses of their own; these have numbers.
for x in $(seq "$number"); do true | true; done
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
for x in $mounts; do
  mkdir -p "$root$x"
  mount -t tmpfs -o uid=4242,gid=4242,mode=0700 tmpfs "$root$x"
done
install -m 0440 -g 4242 "$secrets"/* "$root/etc/parcae"
mount -o remount,bind,ro "$root"
exec "$@"
"""


class Pod:
    """A container of a manifest, with its mounts, and nothing else that it can write; in the network of `there`.
    secrets: a folder for each."""

    def __init__(self, number, spec, root, secrets, there):
        container, = spec["containers"]
        volumes = {x["name"]: x for x in spec.get("volumes", [])}
        mounts = [x["mountPath"] for x in container["volumeMounts"]]
        secret = volumes["bundle"]["secret"]
        if secret["defaultMode"] != 0o440 or not container["securityContext"]["readOnlyRootFilesystem"]:
            raise Failed(f"{container['name']} is open")
        if spec["securityContext"]["runAsUser"] != USER or spec["securityContext"]["fsGroup"] != USER:
            raise Failed(f"{container['name']} has another user than the image")
        arguments = [x.replace("$(POD_NAME)", "pod-1") for x in container["args"]]
        self.log = open(f"{root}.{container['name']}.log", "w+")
        self.process = subprocess.Popen(
            [*DIES_WITH_US, "nsenter", "-t", str(there), "--net", "unshare", "--mount", "--pid", "--fork",
             "--kill-child", "bash", "-c", POD, "pod", root, secrets / secret["secretName"], " ".join(mounts),
             str(number), *command_of(root, arguments)],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)

    def said(self):
        self.log.seek(0)
        return self.log.read()

    def kill(self, signal_number):
        """Tini, by which all ends: it is another user's, so that it would outlive unshare."""
        unshare = self.process.pid
        for tini in pathlib.Path(f"/proc/{unshare}/task/{unshare}/children").read_text().split():
            os.kill(int(tini), signal_number)


def secrets_of(certificates):
    """As the manifests' first lines make them, a folder for each."""
    for x in ("manager", "keeper", "spot", "web"):
        folder = certificates / "secrets" / f"parcae-{x}"
        folder.mkdir(parents=True)
        shutil.copy(certificates / f"{x}.pem", folder / "bundle.pem")
    for x in ("token", "read_token"):
        (folder / x).write_text(f"{os.urandom(32).hex()}\n")
    return certificates / "secrets"


def pods(container):
    """The manifests' manager, keeper, web and one node, as one network; the node is told to end."""
    make_certificates(container.inside)
    certificates = container.path / "root/certificates"
    documents = list(yaml.safe_load_all((PACKAGE / "kubernetes.yaml").read_text()))
    secrets = secrets_of(certificates)
    of = {x["metadata"]["name"]: x for x in documents if x["kind"] in ("StatefulSet", "Deployment")}
    (container.path / "etc/hosts").write_text("127.0.0.1 localhost parcae-manager\n")
    network = subprocess.Popen([*DIES_WITH_US, "unshare", "--net", "sh", "-c", "ip link set lo up && exec sleep 600"])
    started = []
    try:
        # (Until `unshare` did its work that process is in this one's network, whose lo is up, too.)
        until("a network", lambda: os.readlink(f"/proc/{network.pid}/ns/net") != os.readlink("/proc/self/ns/net") and
              "UP" in run("nsenter", "-t", network.pid, "--net", "ip", "link", "show", "lo"), 10)
        for number, name in enumerate(("parcae-manager", "parcae-keeper", "parcae-web", "parcae-node")):
            started.append(Pod(number, of[name]["spec"]["template"]["spec"], container.path, secrets, network.pid))
        shutil.copy(certificates / "client.pem", container.path / "root")
        ask = ["nsenter", "-t", network.pid, "--net", "chroot", container.path, "env", "-i", f"PATH={BARE['PATH']}",
               "parcae", "status", "--json", "--manager", "parcae-manager:4242", "--bundle", "/root/client.pem"]

        def meet():
            if ended := [x.said() for x in started if x.process.poll() is not None]:
                raise Failed(f"a pod has ended: {ended}")
            said = run(*ask, check=False)
            return said.startswith("{") and alive(said) == {"keeper", "spot-pod-1"}
        try:
            until("keeper and node", meet, 30)
        except Failed as e:
            raise Failed(f"{e}: {[x.said()[-700:] for x in started]} {run(*ask, check=False)[-300:]}") from None

        def answer(path, *token):
            return http_status(network.pid, f"https://127.0.0.1:8080{path}", "parcae-web:8080", *token)
        probes = of["parcae-web"]["spec"]["template"]["spec"]["containers"][0]
        until("the web's probes", lambda: all(answer(probes[x]["httpGet"]["path"]) == 200
                                              for x in ("readinessProbe", "livenessProbe")), 30)
        token = (secrets / "parcae-web/token").read_text().strip()
        if (got := (answer("/api/v1/status"), answer("/api/v1/status", token))) != (401, 200):
            raise Failed(f"the web answers {got} without and with a token")
        started[-1].kill(signal.SIGTERM)
        if (status := started[-1].process.wait(30)) != 0:
            raise Failed(f"the node ends with {status}: {started[-1].said()[-2000:]}")
    finally:
        for x in started:
            if x.process.poll() is None:
                x.kill(signal.SIGKILL)
                x.process.wait(30)
        network.kill()
        network.wait()
