"""A root helper below a folder of the test's own, with a service manager made of files.

Everything is the product's but systemd: a release whose id stands in `broken` never comes up, and
`restarts` names the release of each start. Whole programs are run by `python -m
tests.support.root_helpers FOLDER`, so that they can be killed.
"""

import asyncio
import contextlib
import dataclasses
import datetime
import io
import json
import os
import pathlib
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from installer import archive, switch, tree, waiting
from installer import layout as layout_kit
from installer import receipt as receipt_kit
from root_helper import changing, places, service, trusted
from root_helper import mesh as mesh_kit
from runtime_kit import clock as clock_kit
from tests.support import held_sets, tiny_releases
from wire_protocol import helper_protocol as helper
from wire_protocol import ids, orders, signing, statements

ROOT = pathlib.Path(__file__).resolve().parents[2]
NODE = ids.NodeId("web-1")
SECONDS = 60.0
_KEY = held_sets.Key(days=365 * 30)


class FileServices:
    """Stands in for systemd: the Agent runs what `current` leads to, unless that is broken."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder

    def in_use(self, names: tuple[str, ...]) -> tuple[str, ...]:
        return names

    def restart(self, name: str) -> None:
        del name
        with (self._folder / "restarts").open("a") as file:
            file.write(f"{self._runs()}\n")

    def state(self, name: str) -> tuple[str, str]:
        del name
        broken = (self._folder / "broken").read_text().split()
        return ("failed", "") if self._runs() in broken else ("active", self._runs())

    def put_units(self, layout: layout_kit.Layout, release_id: str) -> None:
        del layout
        (self._folder / "units").write_text(release_id)

    def why(self, name: str) -> str:
        return f"{name} says why.\x1b]0;owned\x07\r\n\u202eback"

    def _runs(self) -> str:
        return (self._folder / "prefix/worker/current").resolve().name


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """An installed worker with a helper that has been seeded."""

    folder: pathlib.Path
    places: places.Places

    @property
    def socket(self) -> pathlib.Path:
        """Where the helper listens."""
        return self.folder / "helper.sock"

    @property
    def current(self) -> str | None:
        """The release in use."""
        return switch.current(self.places.layout)

    @property
    def restarts(self) -> list[str]:
        """The release at each start of the Agent."""
        path = self.folder / "restarts"
        return path.read_text().split() if path.exists() else []

    def breaks(self, *release_ids: str) -> None:
        """These never come up."""
        (self.folder / "broken").write_text("\n".join(release_ids))

    def outcome(self) -> dict[str, Any]:
        """What became of the last change."""
        found = json.loads(self.places.outcome.read_text())
        assert isinstance(found, dict)
        return found


def installed(folder: pathlib.Path, *versions: str, seeded: bool = True) -> Machine:
    """A machine with these releases, of which the last is in use."""
    layout = layout_kit.system(
        layout_kit.Role.WORKER, prefix=folder / "prefix", data_dir=folder / "data"
    )
    layout = dataclasses.replace(layout, units=folder / "system-units")
    own = places.Places(layout=layout, folder=folder / "helper")
    for one in (layout.root, folder / "system-units"):
        one.mkdir(parents=True)
    own.folder.mkdir(mode=0o700)
    layout.release_key.write_bytes(tiny_releases.public_pem(tiny_releases.key()))
    machine = Machine(folder=folder, places=own)
    machine.breaks()
    for version in versions:
        release_id = lay_out(machine, tiny_releases.make(version))
        switch.to_release(layout, release_id)
    now = receipt_kit.now()
    receipt_kit.write(
        receipt_kit.Receipt(
            role=layout.role,
            version=versions[-1],
            release=machine.current or "",
            prefix=layout.prefix,
            data_dir=layout.data_dir,
            account=None,
            link=folder / "link",
            installed_at=now,
            updated_at=now,
        ),
        layout=layout,
    )
    if seeded:
        trusted.write(own, trusted.Known(node_id=NODE, held=held_sets.held(_KEY)))
    return machine


def lay_out(machine: Machine, tiny: tiny_releases.Tiny) -> str:
    """Has that release stand beside the others, as the installer does."""
    path = tiny.written(machine.folder / "by-installer.tar")
    with path.open("rb") as file:
        found = archive.read(file, verify=lambda _manifest, _signature: True)
        file.seek(found.payload_offset)
        return tree.lay_out(
            machine.places.layout,
            release=found.release,
            install_sh=found.install_sh,
            payload=io.BytesIO(file.read(found.payload_size)),
            python=tree.this_python(),
        )


def order(
    kind: str,
    *,
    sequence: int,
    content: Mapping[str, Any] | None = None,
    key: held_sets.Key = _KEY,
    node_id: str = NODE,
    platform_id: str = "plt_1",
    epoch: int = 1,
    expires_in: datetime.timedelta = datetime.timedelta(hours=1),
) -> orders.SignedOrder:
    """An order, signed."""
    raw = orders.Order(
        platform_id=ids.PlatformId(platform_id),
        epoch=epoch,
        sequence=sequence,
        node_id=ids.NodeId(node_id),
        agent_id=ids.agent_id_of(ids.NodeId(node_id)),
        expires_at=clock_kit.SystemClock().now() + expires_in,
        kind=kind,
        content=content or {},
    ).to_bytes()
    signature = signing.sign(key.private, raw, context=orders.CONTEXT)
    return orders.SignedOrder(
        content=raw,
        signatures=(statements.Signature(key_id=key.public.key_id, signature=signature),),
    )


def update(tiny: tiny_releases.Tiny, *, sequence: int, **more: Any) -> orders.SignedOrder:
    """An order to update to that archive."""
    return order("update", sequence=sequence, content=tiny.update.to_content(), **more)


def limits(**changed: float) -> service.Limits:
    """Short ones."""
    short = {"idle_seconds": 0.5, "close_seconds": 2.0, "read_seconds": 2.0}
    return service.Limits(**{**short, **changed})


def serving(
    machine: Machine,
    *,
    peers: Sequence[int] | None = None,
    limits_: service.Limits | None = None,
    mesh: mesh_kit.Mesh | None = None,
) -> service.Service:
    """The helper's service over the machine."""
    return service.Service(
        places=machine.places,
        change=changing.Changing(
            places=machine.places,
            services=FileServices(machine.folder),
            waits=waiting.SystemWaits(),
            ready_seconds=2.0,
            steady_seconds=0.5,
        ),
        mesh=mesh or mesh_kit.Mesh(),
        clock=clock_kit.SystemClock(),
        peers=frozenset({os.geteuid()} if peers is None else peers),
        limits=limits_ or limits(),
    )


@contextlib.contextmanager
def listening(machine: Machine) -> Iterator[socket.socket]:
    """The helper's socket, as the service manager holds it."""
    machine.socket.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(machine.socket))
        listener.listen()
        yield listener


@contextlib.contextmanager
def asked(machine: Machine, line: bytes, *files: int) -> Iterator[bytes]:
    """The answer to one request; the connection stays open for the block. Blocking."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(SECONDS)
        connection.connect(str(machine.socket))
        with contextlib.suppress(BrokenPipeError):  # refused before it was read: the answer says so
            sent = socket.send_fds(connection, [line], list(files)) if files else 0
            connection.sendall(line[sent:])
        said = b""
        while not said.endswith(b"\n"):
            piece = connection.recv(65_536)
            if not piece:
                raise ConnectionResetError("The helper said nothing.")
            said += piece
        yield said


def ask(machine: Machine, line: bytes, *files: int) -> bytes:
    """One request; the answer's line. Blocking: from a thread."""
    with asked(machine, line, *files) as said:
        return said


def hand(
    machine: Machine, verb: helper.Verb, signed: orders.SignedOrder, *files: int
) -> helper.Staged:
    """Hands an order over; raises `helper.Refused`."""
    return helper.parse_staged(ask(machine, helper.write_order(verb, signed), *files))


def started(machine: Machine, *, crash_at: str | None = None) -> subprocess.Popen[str]:
    """The helper as a process of its own; the caller waits for its end."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    if crash_at is not None:
        environment["ENLIST_CRASH_AT"] = crash_at
    return subprocess.Popen(
        [sys.executable, "-m", "tests.support.root_helpers", str(machine.folder)],
        env=environment,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def at(folder: pathlib.Path) -> Machine:
    """The machine that `installed` made in that folder."""
    layout = layout_kit.system(
        layout_kit.Role.WORKER, prefix=folder / "prefix", data_dir=folder / "data"
    )
    layout = dataclasses.replace(layout, units=folder / "system-units")
    return Machine(folder=folder, places=places.Places(layout=layout, folder=folder / "helper"))


def main() -> None:
    """Serves the machine in the folder that is named until it is idle."""
    machine = at(pathlib.Path(sys.argv[1]))
    with listening(machine) as listener:
        asyncio.run(serving(machine).run(listener))


if __name__ == "__main__":
    main()
