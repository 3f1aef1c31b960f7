"""Stands in for systemd and the root helper of one machine, as a process of its own.

    python -m tests.support.release_helper --folder DIR --data-dir DIR --release ID

It keeps the Agent of a release running, and carries out `update` and `roll-back` on its socket as
the root helper does: the archive must be the one the order names, the release goes beside the
others, and after the Agent has let go of the connection it is stopped and the other is started. One
that does not stay is rolled back. Not here: root, signatures, sandboxes (tests of root_helper).
Releases are real Pythons of their own (`releases/<id>`), with this checkout's packages.
"""

import argparse
import hashlib
import io
import json
import lzma
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tarfile
import time
from typing import Any, BinaryIO

from installer import release as release_format
from tests.support import small_bundles
from wire_protocol import helper_protocol as helper
from wire_protocol import orders, strict_json, updates

ROOT = pathlib.Path(__file__).parents[2]
PACKAGES = ("wire_protocol", "runtime_kit", "worker_agent", "operator_cli", "enlist")
READY_SECONDS = 30.0
STAY_SECONDS = 1.0
LET_GO_SECONDS = 10.0
SOCKET = "helper.sock"


def payload(version: str, *, replaced: dict[str, str] | None = None) -> bytes:
    """This checkout's code under another version, as a release's payload holds it."""
    changed = {
        "wire_protocol/product.py": (ROOT / "wire_protocol" / "product.py")
        .read_text()
        .replace('VERSION = "0.1.0"', f'VERSION = "{version}"'),
        **(replaced or {}),
    }
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as tar:
        for package in PACKAGES:
            for path in sorted((ROOT / package).rglob("*.py")):
                name = str(path.relative_to(ROOT))
                content = changed.get(name, "").encode() or path.read_bytes()
                member = tarfile.TarInfo(f"code/{name}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    return lzma.compress(plain.getvalue(), preset=0)


def lay_out(folder: pathlib.Path, release_id: str, packed: bytes) -> pathlib.Path:
    """The release in its folder, with a Python of its own."""
    place = folder / "releases" / release_id
    shutil.rmtree(place, ignore_errors=True)
    site = place / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    site /= "site-packages"
    site.mkdir(parents=True)
    with tarfile.open(fileobj=io.BytesIO(lzma.decompress(packed))) as tar:
        tar.extractall(place, filter="data")
    for package in PACKAGES:
        (place / "code" / package).rename(site / package)
    (site / "others.pth").write_text(f"{sysconfig.get_paths()['purelib']}\n")
    base = pathlib.Path(sys._base_executable)  # type: ignore[attr-defined]
    (place / "pyvenv.cfg").write_text(f"home = {base.parent}\n")
    (place / "bin").mkdir()
    (place / "bin" / "python").symlink_to(base)
    return place


def lay_out_first(folder: pathlib.Path, *, version: str) -> str:
    """A machine's first release; its id."""
    packed = payload(version)
    made = small_bundles.make(small_bundles.key(), version=version, payload=packed).release
    lay_out(folder, made.id, packed)
    return made.id


class Machine:
    """The Agent of the present release, and the one before."""

    def __init__(self, given: argparse.Namespace) -> None:
        self._folder: pathlib.Path = given.folder
        self._data_dir: pathlib.Path = given.data_dir
        self.present: str = given.release
        self.previous: str | None = None
        self._agent: subprocess.Popen[bytes] | None = None
        self._crash_at: str | None = given.crash_agent_at
        self._notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        (self._folder / "notify").unlink(missing_ok=True)
        self._notify.bind(str(self._folder / "notify"))
        self._notify.settimeout(0.1)

    def start(self) -> None:
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("ENLIST_")
        }
        environment["ENLIST_HELPER_SOCKET"] = str(self._folder / SOCKET)
        environment["NOTIFY_SOCKET"] = str(self._folder / "notify")
        if self._crash_at:
            environment["ENLIST_CRASH_AT"], self._crash_at = self._crash_at, None
        python = self._folder / "releases" / self.present / "bin" / "python"
        with (self._folder / "agent.log").open("ab") as log:
            self._agent = subprocess.Popen(
                [python, "-I", "-m", "operator_cli", "agent", "--data-dir", self._data_dir],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
            )

    @property
    def has_ended(self) -> bool:
        return self._agent is None or self._agent.poll() is not None

    def stop(self) -> None:
        if self._agent is not None and self._agent.poll() is None:
            self._agent.send_signal(signal.SIGTERM)
            try:
                self._agent.wait(15)
            except subprocess.TimeoutExpired:
                self._agent.kill()
                self._agent.wait()

    def change(self, to: str) -> None:
        """Runs the other release; goes back where it does not stay."""
        before, self.present, self.previous = self.present, to, self.present
        self.stop()
        self._told()
        self.start()
        if self._stays():
            _say("changed", release=to)
        else:
            _say("rolled-back", release=to)
            self.stop()
            self.present = before
            self.start()

    def _stays(self) -> bool:
        """Whether the Agent tells that it is ready, and lives on for a while."""
        until = time.monotonic() + READY_SECONDS
        while not self.has_ended and time.monotonic() < until:
            if "READY=1" in self._told():
                until = time.monotonic() + STAY_SECONDS
                while time.monotonic() < until:
                    time.sleep(0.05)
                return not self.has_ended
        return False

    def _told(self) -> list[str]:
        """What the Agent has told its service manager of late."""
        lines: list[str] = []
        try:
            while True:
                lines += self._notify.recv(4096).decode().splitlines()
        except TimeoutError:
            return lines

    def carry_out(self, connection: socket.socket) -> None:
        """One request, to its end."""
        connection.settimeout(30)
        line, descriptors, _, _ = socket.recv_fds(connection, helper.MAX_LINE_BYTES, 4)
        try:
            verb, _ = helper.parse_verb(line)
            if verb not in (helper.Verb.UPDATE, helper.Verb.ROLL_BACK):
                # The trust set is believed; the mesh and the rest are not this stand-in's.
                held = verb is helper.Verb.TRUST
                refusal = helper.write_refusal("not-here", "This helper cannot do that.")
                connection.sendall(helper.write_done("held") if held else refusal)
                return
            to = self._staged(line, descriptors)
        except (strict_json.Malformed, ValueError, release_format.BadRelease) as error:
            _say("refused", reason=str(error))
            connection.sendall(helper.write_refusal("refused", str(error)))
            return
        finally:
            for one in descriptors:
                os.close(one)
        _say("staged", release=to)
        connection.sendall(helper.write_staged(to))
        connection.settimeout(LET_GO_SECONDS)
        try:
            connection.recv(1)
        except TimeoutError:
            _say("not-let-go")
        connection.close()
        self.change(to)

    def _staged(self, line: bytes, descriptors: list[int]) -> str:
        verb, fields = helper.parse_verb(line)
        order: dict[str, Any] = json.loads(helper.parse_order(fields).content)
        assert order["kind"] == verb.value == str(orders.Kind(order["kind"]))
        if verb is helper.Verb.ROLL_BACK:
            updates.require_roll_back(order["content"])
            if self.previous is None:
                raise ValueError("There is no release before this one.")
            return self.previous
        wanted = updates.parse_update(order["content"])
        with os.fdopen(os.dup(descriptors[0]), "rb") as file:
            content = file.read(wanted.size + 1)
        if hashlib.sha256(content).hexdigest() != wanted.archive_sha256:
            raise ValueError("The archive is not the one that the order names.")
        lay_out(self._folder, wanted.release, _payload_of(io.BytesIO(content)))
        return wanted.release


def _payload_of(file: BinaryIO) -> bytes:
    with tarfile.open(fileobj=file, mode="r:") as tar:
        found = tar.extractfile(release_format.PAYLOAD)
        assert found is not None
        return found.read()


def _say(what: str, **more: str) -> None:
    sys.stdout.write(json.dumps({"said": what, **more}) + "\n")
    sys.stdout.flush()


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=pathlib.Path, required=True)
    parser.add_argument("--data-dir", type=pathlib.Path, required=True)
    parser.add_argument("--release", required=True)
    parser.add_argument("--crash-agent-at")
    return parser.parse_args()


def main() -> None:
    """Serves until SIGTERM."""
    given = _parsed()
    machine = Machine(given)
    stopped = False

    def stop(_number: int, _frame: object) -> None:
        nonlocal stopped
        stopped = True

    signal.signal(signal.SIGTERM, stop)
    path = given.folder / SOCKET
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen(4)
    listener.settimeout(0.2)
    machine.start()
    _say("ready")
    try:
        while not stopped:
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                if machine.has_ended:  # as a service manager does
                    _say("restarted")
                    machine.start()
                continue
            with connection:
                machine.carry_out(connection)
    finally:
        machine.stop()


if __name__ == "__main__":
    main()
