"""Installing on machines as a person does: released folders, install.sh, join, and `ready`.

Not for: what a suite is about; each says for itself what it expects.
"""

import contextlib
import dataclasses
import http.client
import json
import pathlib
import shutil
import time
from collections.abc import Iterator, Mapping
from typing import Any

from tests.support import bundles, local_socket
from tests.support.machines import machine as machine_kit

RELEASES = "/srv/enlist"
PYTHONS = ("3.11", "3.13")  # of Debian 12 and 13
# No node may be newer than its Platform, which runs what the checkout says.
OLD_VERSION, NEXT_VERSION, BROKEN_VERSION = "0.0.7", "0.0.8", "0.0.9"
INSTALL_SECONDS = 180.0
READY_SECONDS = 60.0
PACE_SECONDS = 0.1
# What the Agent runs first; a build whose Agent crashes at its start.
CRASHING = {"worker_agent/app/__init__.py": b'"""Broken on purpose."""\n\nraise SystemExit(9)\n'}


class Releases:
    """Folders of both roles as `--from` takes them; each is built when first asked for."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        folder.mkdir()

    def ensure(self, name: str) -> str:
        """The path on a machine of the folder of that name, see `_built`."""
        target = self.folder / name
        if not target.is_dir():
            aside = self.folder / f".{name}"
            aside.mkdir()
            for released in self._built(name):
                for file in released.folder.iterdir():
                    if file.is_file():
                        shutil.copy(file, aside / file.name)
            aside.rename(target)
        return f"{RELEASES}/{name}"

    def _built(self, name: str) -> list[bundles.Released]:
        match name:
            case "now":
                return [
                    bundles.released("worker", pythons=PYTHONS),
                    bundles.released("platform", pythons=PYTHONS[:1]),
                ]
            case "trixie":
                return [bundles.released("platform", pythons=PYTHONS[1:])]
            case "next":
                return [self._worker(version=NEXT_VERSION)]
            case "old":
                return [self._worker(version=OLD_VERSION)]
            case "broken":
                return [self._worker(version=BROKEN_VERSION, replaced=CRASHING)]
            case _:
                raise ValueError(f"There is no release called {name}.")

    @staticmethod
    def _worker(*, version: str, replaced: Mapping[str, bytes] | None = None) -> bundles.Released:
        return bundles.released("worker", version=version, replaced=replaced, pythons=PYTHONS[:1])


def install_command(role: str, *options: str, release: str = f"{RELEASES}/now") -> list[str]:
    """The command line of an installation out of a released folder, without questions."""
    return ["sh", f"{release}/install.sh", "--role", role, "--from", release, "--yes", *options]


def install(
    machine: machine_kit.Machine,
    role: str,
    *options: str,
    release: str = f"{RELEASES}/now",
    stdin: str = "",
    expect: int = 0,
    seconds: float = INSTALL_SECONDS,
    **how: Any,
) -> machine_kit.Ended:
    """Runs install.sh out of a released folder on the machine."""
    done = machine.attempt(
        *install_command(role, *options, release=release),
        stdin=stdin,
        seconds=seconds,
        **how,
    )
    if done.code != expect:
        raise machine_kit.CommandFailed(
            f"install.sh on {machine.name} ended with {done.code}, not {expect}:\n"
            f"{done.out[-3000:]}\n--\n{done.err[-3000:]}"
        )
    return done


def uninstall(machine: machine_kit.Machine, role: str, *, release: str = f"{RELEASES}/now") -> str:
    """Removes the role from the machine; must succeed."""
    return machine.run(
        *("sh", f"{release}/install.sh", "--uninstall", "--role", role, "--yes"),
        seconds=INSTALL_SECONDS,
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """What `nodes enroll-token -o json` printed."""

    join_token: str
    bare_command: str
    pins: tuple[str, ...]


class Platform:
    """An installed Platform on its machine, asked as its administrator asks."""

    def __init__(self, machine: machine_kit.Machine) -> None:
        self.machine = machine

    @property
    def bundle_url(self) -> str:
        """Where machines fetch the installer and the worker's bundle."""
        return f"https://{self.machine.address}:8446"

    @property
    def version(self) -> str:
        """The version it runs."""
        return version(self.machine)

    def enlist(self, *arguments: str, **how: Any) -> str:
        """Runs `enlist` as root; it must succeed."""
        return self.machine.run("enlist", *arguments, **how)

    def configure(self, settings: str) -> None:
        """Writes its config.toml and restarts it."""
        path = "/var/lib/enlist/platform/config.toml"
        self.machine.write(path, settings, mode=0o600)
        self.machine.run("chown", "enlist-platform:", path)
        self.machine.run("systemctl", "restart", "enlist-platform.service")

    def wait_serving(self, *, seconds: float = 60) -> None:
        """Waits until API, listener and bundle server answer."""
        self.machine.until("enlist", "nodes", "list", seconds=seconds)
        for port in (8444, 8446):
            self.machine.until(
                *("curl", "-sk", "-m", "5", "-o", "/dev/null", f"https://localhost:{port}/"),
                seconds=seconds,
            )

    def token(self, node: str, *options: str) -> Token:
        """Issues a join token for a node."""
        said = json.loads(self.enlist("nodes", "enroll-token", node, *options, "-o", "json"))
        return Token(
            join_token=said["join_token"],
            bare_command=said.get("bare_command", ""),
            pins=tuple(said["pins"]),
        )

    def node(self, node: str) -> dict[str, Any]:
        """The node as the list has it; empty when it has none of that name.

        Asked over the local socket as it lies on the machine's disk: a command for each look would
        take the time away from what is waited for.
        """
        socket = self.machine.root / "var/lib/enlist/platform/run/platform.sock"
        connection = local_socket.Connection(str(socket), seconds=30)
        try:
            connection.request("GET", "/api/v1/nodes?limit=200")
            listed = json.loads(connection.getresponse().read())["nodes"]
        except (OSError, http.client.HTTPException):
            return {}  # not there yet, or not any more
        finally:
            connection.close()
        return next((found for found in listed if found["node_id"] == node), {})

    def wait_state(
        self, node: str, state: str, *, seconds: float = READY_SECONDS
    ) -> dict[str, Any]:
        """Waits until a node is in that state; returns it."""
        return self.wait_node(node, seconds=seconds, state=state)

    def wait_node(
        self, node: str, *, seconds: float = READY_SECONDS, **wanted: Any
    ) -> dict[str, Any]:
        """Waits until the node's fields have these values; returns it."""
        deadline = time.monotonic() + seconds
        while True:
            found = self.node(node)
            if found and all(found.get(name) == value for name, value in wanted.items()):
                return found
            if time.monotonic() > deadline:
                raise TimeoutError(f"{node} was not {wanted} within {seconds} s, but {found}.")
            time.sleep(PACE_SECONDS)

    def wait_heartbeat(self, node: str, *, seconds: float = READY_SECONDS) -> None:
        """Waits until the node has told of itself."""
        deadline = time.monotonic() + seconds
        while self.node(node).get("capacity") is None:  # as it was stored, which is a little later
            if time.monotonic() > deadline:
                raise TimeoutError(f"{node} sent no heartbeat within {seconds} s.")
            time.sleep(PACE_SECONDS)

    def wait_gone(self, node: str, *, seconds: float = READY_SECONDS) -> None:
        """Waits until the node is none of this Platform's any more."""
        deadline = time.monotonic() + seconds
        while self.node(node).get("state", "removed") != "removed":
            if time.monotonic() > deadline:
                raise TimeoutError(f"{node} was not removed within {seconds} s: {self.node(node)}.")
            time.sleep(PACE_SECONDS)

    def add_bundle(self, folder: str) -> None:
        """Has the Platform serve the worker's bundle of a released folder."""
        self.enlist("platform", "bundles", "add", folder)

    def wait_newer_session(
        self, node: str, *, than: int, seconds: float = READY_SECONDS
    ) -> dict[str, Any]:
        """Waits until the node is ready in a session after that generation; returns it."""
        deadline = time.monotonic() + seconds
        while True:
            found = self.node(node)
            if found.get("state") == "ready" and found["generation"] > than:
                return found
            if time.monotonic() > deadline:
                raise TimeoutError(f"{node} had no session after {than} in {seconds} s: {found}.")
            time.sleep(PACE_SECONDS)


def version(machine: machine_kit.Machine) -> str:
    """The version in use."""
    return machine.run("enlist", "--version").split()[-1]


def identity(machine: machine_kit.Machine) -> str:
    """Hashes of the machine's key and of what it knows of its Platform, to compare."""
    names = "identity/* join.json"
    return machine.run("sh", "-c", f"cd /var/lib/enlist/worker && sha256sum {names} | grep -v lock")


def release(machine: machine_kit.Machine) -> str:
    """The release in use."""
    return machine.run("readlink", "/opt/enlist/worker/current").strip()


def agent_pid(machine: machine_kit.Machine) -> str:
    """The process id of the running Agent, `0` when there is none."""
    return machine.run("systemctl", "show", "-P", "MainPID", "enlist-agent.service").strip()


@contextlib.contextmanager
def explained(machine: machine_kit.Machine, *units: str) -> Iterator[None]:
    """Adds the journal of these units to a failure inside the block."""
    try:
        yield
    except (AssertionError, TimeoutError) as error:
        for unit in units:
            error.add_note(f"--- {machine.name} {unit}\n{machine.journal(unit)}")
        raise
