"""The bench of machines on this host: the product's own folders, with keepers that start nothing.

What a keeper does (the disk, the boot) is shown on real machines in tests/machines; here it is the
contract's side: names, turns, folders, what is found again.
"""

import contextlib
import datetime
import ipaddress
import pathlib
import tempfile
from collections.abc import Mapping, Sequence
from typing import ClassVar, Self

from provisioning import contract, credentials, naming, providers
from provisioning.local import driver as drivers
from provisioning.local import hands, keeper, machines
from provisioning.local import host as hosts
from tests.support.clouds import bench
from tests.support.clouds import ledger as ledger_kit
from tests.support.clouds import script as script_kit


class Keepers:
    """Says what a keeper says when its machine runs, and holds none."""

    def __init__(self) -> None:
        self._running: set[str] = set()

    def start(self, folder: pathlib.Path, command: Sequence[str], *, size: machines.Size) -> None:
        assert command[-6:-4] == ["--folder", str(folder)]
        assert size in machines.SIZES.values()
        self._running.add(folder.name)
        keeper.say(folder, keeper.Phase.RUNNING)

    def is_alive(self, folder: pathlib.Path) -> bool:
        return folder.name in self._running

    def end(self, folder: pathlib.Path) -> None:
        self._running.discard(folder.name)


class NoNetwork:
    """No bridge of this host is touched."""

    def ensure(self, network: ipaddress.IPv4Network) -> None:
        del network

    def remove_if_unused(self) -> None:
        return


class _Recorded(hands.Own):
    """The process's own hands, with each call in the ledger, and answers that may be lost."""

    def __init__(self, host: hosts.Host, *, of: "LocalBench") -> None:
        super().__init__(host)
        self._of = of

    async def create(self, wish: machines.Wish, *, now: datetime.datetime) -> hosts.Seen:
        self._of.saw("machine-create")
        seen = await super().create(wish, now=now)
        self._of.born(seen, user_data=wish.first_boot.encode())
        armed = self._of.script.take("machine-create")
        if armed is not None and armed.verb is script_kit.Verb.COMMIT_THEN_DROP:
            raise ConnectionResetError("the helper was killed")
        return seen

    async def all(self) -> Sequence[hosts.Seen]:
        self._of.saw(self._of.told.names()[-1])
        return await super().all()

    async def reboot(self, name: str) -> bool:
        self._of.saw("machine-reboot")
        return await super().reboot(name)

    async def delete(self, name: str) -> bool:
        self._of.saw("machine-delete")
        found = await super().delete(name)
        if found:
            self._of.ledger.machines[name].died = self._of.clock.now()
        return found

    async def console(self, name: str) -> str | None:
        self._of.saw("machine-console")
        return await super().console(name)


class LocalBench(bench.Bench):
    """A host without machines at first."""

    provider = "local-nspawn"
    kind: ClassVar[machines.Kind] = machines.Kind.NSPAWN
    steps = {  # noqa: RUF012 - as the base declares it
        bench.Step.CREATE: "machine-create",
        bench.Step.FIND: "machine-list",
        bench.Step.DESCRIBE: "machine-list",
        bench.Step.DELETE: "machine-delete",
        bench.Step.LIST: "machine-list",
        bench.Step.POLL: "machine-list",
    }
    verbs = frozenset({script_kit.Verb.COMMIT_THEN_DROP})
    region = machines.REGION
    other_region = "elsewhere"
    size = "small"
    image = "debian-12"

    def __init__(self) -> None:
        super().__init__()
        self._ledger = ledger_kit.Ledger()
        self._script = script_kit.Script()
        self._closing = contextlib.ExitStack()

    def __enter__(self) -> Self:
        folder = pathlib.Path(self._closing.enter_context(tempfile.TemporaryDirectory()))
        self.places = hosts.Places(folder=folder / "machines", images=folder / "images")
        self.host = hosts.Host(self.places, launcher=Keepers(), network=NoNetwork())
        return self

    def __exit__(self, *_: object) -> None:
        left = [one.machine.name for one in self.host.all()]
        for name in left:
            self.host.delete(name)
        rest = [one.name for one in self.places.folder.glob("*") if one.name != ".lock"]
        self._closing.close()
        assert rest == []

    @property
    def ledger(self) -> ledger_kit.Ledger:
        return self._ledger

    @property
    def script(self) -> script_kit.Script:
        return self._script

    def opening(self) -> providers.Opening:
        return providers.Opening(
            settings={},
            credential=credentials.parse(credentials.Kind.NONE, {}),
            observer=self.told,
            clock=self.clock,
        )

    def driver(self, *, limits: providers.TimeLimits | None = None) -> contract.Driver:
        del limits
        return drivers.LocalDriver(
            kind=self.kind,
            hands=_Recorded(self.host, of=self),
            network=drivers.DEFAULT_NETWORK,
            observer=self.told,
            clock=self.clock,
            missing=lambda _: (),
        )

    def plant(self, *, name: str, tags: Mapping[str, str]) -> str:
        owner = naming.owner_of(tags) or contract.Owner(
            installation="in-somebody", infra="default", operation="op-x", node="x", attempt=1
        )
        folder = self.places.folder / name
        folder.mkdir(parents=True)
        machines.write(
            folder,
            machines.Machine(
                kind=self.kind,
                name=name,
                owner=owner,
                size=self.size,
                image=self.image,
                network=drivers.DEFAULT_NETWORK,
                address="10.99.0.250",
                created_at=self.clock.now(),
            ),
        )
        return name

    def settle(self) -> None:
        self.clock.advance(60)

    def saw(self, name: str) -> None:
        """One call in the ledger."""
        self._ledger.seen.append(
            ledger_kit.Seen(
                at=self.clock.now(), name=name, method="", target=name, headers={}, body=b""
            )
        )

    def born(self, seen: hosts.Seen, *, user_data: bytes) -> None:
        """A machine in the ledger, with the user data that its disk will have."""
        machine = seen.machine
        assert machine.kind is self.kind
        kept = self.places.folder / machine.name / "user-data"
        assert kept.read_bytes() == user_data
        self._ledger.machines[machine.name] = ledger_kit.Machine(
            ref=machine.name,
            name=machine.name,
            tags=naming.tags_of(machine.owner),
            region=machines.REGION,
            size=machine.size,
            born=machine.created_at,
            user_data=kept.read_bytes(),
        )


BENCH = LocalBench
