"""The provider `local`: the contract's side of machines on this very host.

It costs nothing and asks for no account. Creating is idempotent by nature: a machine's folder is
named after operation and attempt and can be made once, so sending an order again is the look-up,
and absence may be believed at once. What needs root is done by `hands`.

Known limit: no volumes, snapshots or stable addresses; sizes are limits only where systemd runs
this host.
"""

import datetime
import os
import pathlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NoReturn, TypeVar

from provisioning import contract, outcomes, providers
from provisioning.local import bridge, keeper, machines, programs
from provisioning.local import hands as hands_kit
from provisioning.local import host as hosts
from runtime_kit import clock as clock_kit

DEFAULT_NETWORK: Final = "10.99.0.0/24"
SETTINGS: Final = ("network", "directory", "images", "bridge")
Got = TypeVar("Got")

_FEATURE = contract.Feature
CHECK: Final = contract.ApiCall(name="machine-list (check)", feature=_FEATURE.CHECK)
CREATE: Final = contract.ApiCall(
    name="machine-create", feature=_FEATURE.MACHINES, right="root", changes=True
)
LIST: Final = contract.ApiCall(name="machine-list", feature=_FEATURE.MACHINES)
DELETE: Final = contract.ApiCall(
    name="machine-delete", feature=_FEATURE.MACHINES, right="root", changes=True
)
REBOOT: Final = contract.ApiCall(
    name="machine-reboot", feature=_FEATURE.MACHINES, right="root", changes=True
)
CONSOLE: Final = contract.ApiCall(name="machine-console", feature=_FEATURE.MACHINES)
CALLS: Final = (CHECK, CREATE, LIST, DELETE, REBOOT, CONSOLE)
_POWER: Final = {
    keeper.Phase.PREPARING: contract.Power.STARTING,
    keeper.Phase.RUNNING: contract.Power.RUNNING,
    keeper.Phase.OFF: contract.Power.OFF,
    keeper.Phase.FAILED: contract.Power.FAILED,
}
_FREE: Final = contract.Price(hourly_micros=0, currency="EUR")


class LocalDriver:
    """Machines of one kind on this host."""

    def __init__(
        self,
        *,
        kind: machines.Kind,
        hands: hands_kit.Hands,
        network: str,
        observer: contract.Observer,
        clock: clock_kit.Clock,
        missing: Callable[[machines.Kind], tuple[str, ...]] = hosts.missing_programs,
    ) -> None:
        self._kind = kind
        self._hands = hands
        self._network = network
        self._observer = observer
        self._clock = clock
        self._missing = missing

    @property
    def provider(self) -> str:
        """Its name."""
        return f"local-{self._kind}"

    @property
    def capabilities(self) -> frozenset[contract.Capability]:
        """What it can do beyond the core."""
        return frozenset({contract.Capability.CONSOLE, contract.Capability.REBOOT})

    @property
    def calls(self) -> Sequence[contract.ApiCall]:
        """Every call it can make."""
        return CALLS

    @property
    def lookup(self) -> contract.LookupRules:
        """This host's own folder is never behind."""
        return contract.LookupRules(clean_answers=1, settle=datetime.timedelta(0), replays=True)

    async def validate(self) -> contract.Validation:
        """Whether programs and rights are here."""
        present = await self._told(CHECK, self._hands.all())
        return contract.Validation(
            account=os.uname().nodename,
            principal="root" if os.geteuid() == 0 else "the root helper",
            missing=tuple(f"apt-get install {package}" for package in self._missing(self._kind)),
            room=hosts.room(self._kind, present=[seen.machine for seen in present]),
        )

    async def offer(self) -> contract.Offer:
        """Sizes by name; the images that can be built."""
        return contract.Offer(
            regions=(machines.REGION,),
            sizes=tuple(
                contract.Size(
                    name=size.name,
                    cores=size.cores,
                    memory_bytes=size.memory_megabytes * 1_048_576,
                    disk_bytes=size.disk_gigabytes * 1_000_000_000,
                    architecture=os.uname().machine,
                    regions=(machines.REGION,),
                    prices={"": _FREE},
                )
                for size in machines.SIZES.values()
            ),
            images=tuple(machines.RELEASES),
            told_at=self._clock.now(),
        )

    async def plan(self, request: contract.Request) -> contract.Plan:
        """Whether this order can be carried out here."""
        refusals = []
        try:
            machines.check(self._wish(request))
        except machines.Unusable as error:
            refusals.append(str(error))
        if request.region not in ("", machines.REGION):
            refusals.append(f"This host is one region, {machines.REGION}, not {request.region!r}.")
        if request.volumes or request.addresses or request.ssh is not None:
            refusals.append("Local machines take no volumes, stable addresses or SSH keys.")
        if request.disk_gigabytes is not None:
            refusals.append("The size decides the disk of a local machine; leave --disk out.")
        if not (request.public_ipv4 and request.public_ipv6):
            refusals.append("Local machines have the addresses of this host's bridge alone.")
        refusals += [
            f"This host lacks a program: apt-get install {package}"
            for package in self._missing(self._kind)
        ]
        return contract.Plan(refusals=tuple(refusals), price=_FREE)

    async def create(self, request: contract.Request) -> contract.Created:
        """Makes its folder and has its keeper start; sent again, it gives the same machine."""
        seen = await self._told(
            CREATE, self._hands.create(self._wish(request), now=self._clock.now())
        )
        return contract.Created(ref=seen.machine.name, instance=_instance(seen))

    async def poll(self, created: contract.Created) -> contract.Progress:
        """Done once it runs; an image that has to be built first takes minutes."""
        _require(created.ref)
        seen = await self._find(created.ref)
        if seen is None or seen.phase == keeper.Phase.FAILED:
            detail = "It is gone." if seen is None else seen.detail
            raise outcomes.Fault(
                f"The machine {created.ref} did not start: {detail}",
                outcome=outcomes.Outcome.NOT_DONE_PERMANENT,
                topic=outcomes.Topic.OTHER,
                code="start-failed",
                ref=created.ref,
            )
        is_up = seen.phase != keeper.Phase.PREPARING
        return contract.Progress.DONE if is_up else contract.Progress.RUNNING

    async def find(self, owner: contract.Owner, *, name: str, region: str) -> contract.Sightings:
        """By operation, and by this very name."""
        del region  # there is one
        found = []
        for seen in await self._told(LIST, self._hands.all()):
            theirs = seen.machine.owner
            if (theirs.installation, theirs.operation) == (owner.installation, owner.operation):
                found.append(_instance(seen))
            elif seen.machine.name == name:
                found.append(_instance(seen, is_ours=False))
        return contract.Sightings(instances=tuple(found))

    async def describe(self, ref: str, *, region: str) -> contract.Instance | None:
        """The machine; None where there is none of that name."""
        del region
        _require(ref)
        seen = await self._find(ref)
        return None if seen is None else _instance(seen)

    async def delete(self, ref: str, *, region: str) -> None:
        """Ends it and removes all of it, at once."""
        del region
        _require(ref)
        await self._told(DELETE, self._hands.delete(ref))

    async def reboot(self, ref: str, *, region: str) -> None:
        """Restarts it; starts it where it is off."""
        del region
        _require(ref)
        if not await self._told(REBOOT, self._hands.reboot(ref)):
            raise outcomes.Fault(
                f"There is no local machine {ref}.",
                outcome=outcomes.Outcome.NOT_DONE_PERMANENT,
                topic=outcomes.Topic.STATE,
                code="not-found",
            )

    async def inventory(self, installation: str) -> contract.Inventory:
        """All of this installation's."""
        present = await self._told(LIST, self._hands.all())
        return contract.Inventory(
            machines=tuple(
                _instance(seen)
                for seen in present
                if seen.machine.owner.installation == installation
            ),
            children=(),
        )

    async def describe_child(self, child: contract.Child) -> contract.Child | None:
        """Refused: there are none, and none is called gone unasked."""
        _refuse(f"Local machines have no {child.kind.value}.")

    async def delete_child(self, child: contract.Child) -> None:
        """Refused."""
        _refuse(f"Local machines have no {child.kind.value}.")

    async def create_child(
        self,
        kind: contract.ChildKind,
        *,
        owner: contract.Owner,
        name: str,
        region: str,
        size_gigabytes: int | None = None,
        of: str | None = None,
    ) -> contract.Child:
        """Refused: this host has none to give."""
        del owner, name, region, size_gigabytes, of
        _refuse(f"Local machines have no {kind.value}.")

    async def attach(self, child: contract.Child, *, to: str) -> None:
        """Refused."""
        del to
        _refuse(f"Local machines have no {child.kind.value}.")

    async def detach(self, child: contract.Child) -> None:
        """Refused."""
        _refuse(f"Local machines have no {child.kind.value}.")

    async def console(self, ref: str, *, region: str) -> str | None:
        """The end of what the machine showed."""
        del region
        _require(ref)
        return await self._told(CONSOLE, self._hands.console(ref))

    async def close(self) -> None:
        """Nothing is held open."""

    def _wish(self, request: contract.Request) -> machines.Wish:
        return machines.Wish(
            kind=self._kind,
            owner=request.owner,
            size=request.size,
            image=request.image,
            network=request.network or self._network,
            first_boot=request.first_boot,
        )

    async def _find(self, ref: str) -> hosts.Seen | None:
        present = await self._told(LIST, self._hands.all())
        return next((seen for seen in present if seen.machine.name == ref), None)

    async def _told(self, call: contract.ApiCall, work: Awaitable[Got]) -> Got:
        """Announces the call, makes it, and gives what went wrong as a fault."""
        try:
            await self._observer(call)
        except BaseException:
            work.close()  # type: ignore[attr-defined]  # a coroutine that is never begun
            raise
        try:
            return await work
        except (hosts.Taken, machines.Unusable, hands_kit.Refused) as error:
            raise _fault_of(error) from error
        except programs.Failed as error:
            raise outcomes.Fault(
                str(error), outcome=outcomes.Outcome.UNKNOWN, topic=outcomes.Topic.OTHER,
                code="program-failed",
            ) from error  # fmt: skip
        except OSError as error:
            raise outcomes.Fault(
                f"This host cannot do that now: {error.strerror or error}.",
                outcome=outcomes.Outcome.UNKNOWN,
                topic=outcomes.Topic.OTHER,
                code=type(error).__name__,
            ) from error


def opened(kind: machines.Kind, opening: providers.Opening) -> LocalDriver:
    """A driver of that kind; raises `providers.Refused`."""
    given = opening.settings
    try:
        network = str(machines.check_network(str(given.get("network") or DEFAULT_NETWORK)))
        places = hosts.Places(
            folder=pathlib.Path(given.get("directory") or machines.FOLDER),
            images=pathlib.Path(given.get("images") or machines.IMAGES),
            bridge=given.get("bridge") or bridge.NAME,
        )
        hands = hands_kit.of_this_process(places)
    except (machines.Unusable, hands_kit.NoHands) as error:
        raise providers.Refused(str(error)) from error
    if kind is machines.Kind.QEMU and isinstance(hands, hands_kit.Helper):
        raise providers.Refused(hands_kit.NO_EMULATOR)
    return LocalDriver(
        kind=kind,
        hands=hands,
        network=network,
        observer=opening.observer,
        clock=opening.clock,
    )


def _instance(seen: hosts.Seen, *, is_ours: bool = True) -> contract.Instance:
    machine = seen.machine
    power = contract.Power.DELETING if machine.is_deleting else _POWER[seen.phase]
    has_failed = power is contract.Power.FAILED
    return contract.Instance(
        ref=machine.name,
        name=machine.name,
        region=machines.REGION,
        power=power,
        raw_state="deleting" if machine.is_deleting else seen.phase,
        owner=machine.owner if is_ours else None,
        size=machine.size,
        image=machine.image,
        private_addresses=(machine.address,),
        created_at=machine.created_at,
        failure=seen.detail if has_failed else None,
        failure_code="start-failed" if has_failed else "",
        instance_id=machine.instance_id,
    )


def _fault_of(error: Exception) -> outcomes.Fault:
    is_taken = isinstance(error, hosts.Taken) or getattr(error, "code", "") == "taken"
    is_full = isinstance(error, hosts.NoRoom) or getattr(error, "code", "") == "no-room"
    return outcomes.Fault(
        str(error),
        outcome=(
            outcomes.Outcome.EXISTS_FOREIGN if is_taken else outcomes.Outcome.NOT_DONE_PERMANENT
        ),
        topic=outcomes.Topic.QUOTA if is_full else outcomes.Topic.INPUT,
        code="taken" if is_taken else "no-room" if is_full else "refused",
    )


def _require(ref: str) -> None:
    try:
        machines.check_name(ref)
    except machines.Unusable:
        raise outcomes.UnreadableRef(f"{ref!r} is no local machine's name.") from None


def _refuse(sentence: str) -> NoReturn:
    raise outcomes.Fault(
        sentence,
        outcome=outcomes.Outcome.NOT_DONE_PERMANENT,
        topic=outcomes.Topic.INPUT,
        code="unsupported",
    )
