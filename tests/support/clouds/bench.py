"""Every provider that the contract suite is run against: one row each.

A `Bench` starts a fake, opens drivers on it and says what the suite cannot know by itself: how the
calls are named, which codes mean what, and what a valid order looks like. To add one, write
`tests/support/clouds/NAME.py` with a `Bench` in it and its row in `BENCHES`.
"""

import abc
import asyncio
import dataclasses
import datetime
import enum
import importlib
from collections.abc import Mapping
from typing import Any, ClassVar, Final, Self, cast

from provisioning import answers, contract, credentials, naming, providers
from runtime_kit import clock as clock_kit
from tests.support.clouds import ledger as ledger_kit
from tests.support.clouds import script as script_kit

BENCHES: Final[Mapping[str, str]] = {
    "azure": "tests.support.clouds.azure_bench",
    "digitalocean": "tests.support.clouds.digitalocean_bench",
    "aws": "tests.support.clouds.aws_bench",
    "gcp": "tests.support.clouds.gcp_bench",
    "hetzner": "tests.support.clouds.hetzner_bench",
    "local-nspawn": "tests.support.clouds.local_bench",
    "local-qemu": "tests.support.clouds.local_qemu_bench",
    "upcloud": "tests.support.clouds.upcloud_bench",
    "linode": "tests.support.clouds.linode_bench",
    "vultr": "tests.support.clouds.vultr_bench",
    "openstack": "tests.support.clouds.openstack_bench",
}

START: Final = datetime.datetime(2026, 12, 1, 12, 0, tzinfo=datetime.UTC)
INSTALLATION: Final = "in-5f0c2a9d4b7e"
FIRST_BOOT: Final = (
    "#cloud-config\n"
    "write_files:\n"
    '- {path: /run/enlist/ticket, permissions: "0400", content: "t-0123456789abcdef"}\n'
    "runcmd:\n"
    '- [sh, -c, "echo \\"quoted\\" $HOME %d && exit 0"]\n'
)
ANY_PORT: Final = "any"
SHORT: Final = providers.TimeLimits(connect=2.0, read=1.0, create=1.0)


class Step(enum.Enum):
    """What the suite arms faults on; each is one call in the ledger."""

    CREATE = "create"  # the call that buys the machine
    FIND = "find"  # the first call of a look-up
    DESCRIBE = "describe"
    DELETE = "delete"  # the call that ends the bill
    LIST = "list"  # the machines' part of the inventory
    POLL = "poll"  # how what was accepted is doing; absent where there is nothing to poll


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Codes:
    """Codes of the provider, one for each class that it has."""

    quota: str | None = None
    capacity: str | None = None
    catalogue: str | None = None
    locked: str | None = None  # as an answer to a delete
    async_capacity: str | None = None  # of what was accepted and then failed


class Announcements:
    """An observer that writes down; `refuse` makes it raise, as an audit that is full does."""

    def __init__(self) -> None:
        self.calls: list[contract.ApiCall] = []
        self.refuse: Exception | None = None

    async def __call__(self, call: contract.ApiCall, /) -> None:
        """Records it, or raises."""
        await asyncio.sleep(0)
        if self.refuse is not None:
            raise self.refuse
        self.calls.append(call)

    def names(self) -> list[str]:
        """The names of all calls announced, in order."""
        return [call.name for call in self.calls]


class Bench(abc.ABC):
    """One provider with its fake. A context manager: the fake runs inside it."""

    provider: ClassVar[str]
    steps: ClassVar[Mapping[Step, str]]
    codes: ClassVar[Codes] = Codes()
    verbs: ClassVar[frozenset[script_kit.Verb]] = frozenset(script_kit.Verb)
    region: ClassVar[str]
    other_region: ClassVar[str]
    size: ClassVar[str]
    image: ClassVar[str]
    volume_gigabytes: ClassVar[int] = 10
    tells_codes: ClassVar[bool] = True  # false: its refusals are sentences alone
    addresses_carry_owner: ClassVar[bool] = True  # false: nothing at all can be put on one
    signs_time: ClassVar[bool] = False  # its credential is a signature that the clock can break

    def __init__(self) -> None:
        self.clock = clock_kit.ManualClock(START)
        self.told = Announcements()
        self.memory: dict[
            str, Any
        ] = {}  # what drivers keep between openings, as the product has it
        self.secrets: list[str] = []  # texts that may appear nowhere

    @abc.abstractmethod
    def __enter__(self) -> Self:
        """Starts the fake."""

    @abc.abstractmethod
    def __exit__(self, *_: object) -> None:
        """Ends it; raises where the referee or the fake itself found a fault."""

    @property
    @abc.abstractmethod
    def ledger(self) -> ledger_kit.Ledger:
        """What the fake was asked and holds."""

    @property
    @abc.abstractmethod
    def script(self) -> script_kit.Script:
        """What it does wrong."""

    @abc.abstractmethod
    def opening(self) -> providers.Opening:
        """What a driver on this fake is opened with; the credential is good."""

    @abc.abstractmethod
    def plant(self, *, name: str, tags: Mapping[str, str]) -> str:
        """A machine made by somebody else, with this very name; its ref."""

    def ports_open(self, ref: str) -> list[str]:
        """What anybody reaches of this machine; all of it where nothing here makes a firewall."""
        del ref
        return [ANY_PORT]

    @abc.abstractmethod
    def settle(self) -> None:
        """Lets what was accepted come to its end: machines run, deleted ones are gone."""

    def driver(self, *, limits: providers.TimeLimits | None = None) -> contract.Driver:
        """A new driver. Close it."""
        opening = dataclasses.replace(self.opening(), memory=self.memory)
        if limits is not None:
            opening = dataclasses.replace(opening, limits=limits)
        return providers.open_driver(self.provider, opening)

    def request(
        self,
        *,
        operation: str = "op-1",
        attempt: int = 1,
        node: str = "demo",
        installation: str = INSTALLATION,
    ) -> contract.Request:
        """A valid order of one machine."""
        owner = contract.Owner(
            installation=installation,
            infra="default",
            operation=operation,
            node=node,
            attempt=attempt,
        )
        return contract.Request(
            owner=owner,
            name=naming.name_of(owner),
            client_token=naming.client_token(owner, zone=self.region),
            region=self.region,
            size=self.size,
            image=self.image,
            first_boot=FIRST_BOOT,
        )


def open_bench(name: str) -> Bench:
    """The bench of this row; enter it."""
    return cast("Bench", importlib.import_module(BENCHES[name]).BENCH())


def a_token(text: str) -> credentials.Token:
    """A token credential of this text."""
    parsed = credentials.parse(credentials.Kind.TOKEN, {"token": text})
    assert isinstance(parsed, credentials.Token)
    return parsed


def budget(left: int, most: int) -> Mapping[str, str]:
    """Headers of a provider that tells its budget."""
    assert answers.budget_of({"ratelimit-remaining": str(left), "ratelimit-limit": str(most)})
    return {"ratelimit-remaining": str(left), "ratelimit-limit": str(most)}
