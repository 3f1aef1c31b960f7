"""A provider in one file: what tests of the engine order from, and what outlives a `kill -9`.

It behaves: machines start and run after a while of its clock, names may have to be unique, children
come with a machine and go with it or do not, tags may show late. It keeps a ledger of every call.
What goes wrong is armed by a test, one verb a call, in order. It is no model of a real provider;
those have fakes of their own.

Long because a provider is one thing: what it holds, what goes wrong and its driver tell one state.
"""

import contextlib
import dataclasses
import datetime
import json
import pathlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Final

from provisioning import contract, outcomes
from runtime_kit import clock as clock_kit
from runtime_kit import crash_points

PROVIDER: Final = "local"
PRICE: Final = contract.Price(hourly_micros=6_000, currency="EUR")
PREPARE: Final = "pocket:prepare"
CREATE: Final = "pocket:create"
DELETE: Final = "pocket:delete"
REBOOT: Final = "pocket:reboot"
FIND: Final = "pocket:find"
DESCRIBE: Final = "pocket:describe"
POLL: Final = "pocket:poll"
LIST: Final = "pocket:list"
PLAN: Final = "pocket:plan"
DELETE_CHILD: Final = "pocket:delete-child"
DESCRIBE_CHILD: Final = "pocket:describe-child"
CHANGING: Final = frozenset({PREPARE, CREATE, DELETE, REBOOT, DELETE_CHILD})
CALLS: Final = {
    name: contract.ApiCall(
        name=name,
        feature=contract.Feature.MACHINES,
        changes=name in CHANGING,
        costs=name == CREATE,
    )
    for name in (
        PREPARE, CREATE, DELETE, REBOOT, FIND, DESCRIBE, POLL, LIST, PLAN, DELETE_CHILD,
        DESCRIBE_CHILD,
    )
}  # fmt: skip
MADE: Final = crash_points.declare(
    "pocket.made", story="the provider of a test has made a machine and answers nothing"
)


def lost() -> outcomes.Fault:
    """The answer was cut off."""
    return outcomes.Fault(
        "The connection was cut.", outcome=outcomes.Outcome.UNKNOWN, topic=outcomes.Topic.NETWORK
    )


def refused(
    topic: outcomes.Topic = outcomes.Topic.QUOTA,
    *,
    later: bool = False,
    code: str = "refused",
    wait: float | None = None,
) -> outcomes.Fault:
    """A clear no: for good, or `later`."""
    return outcomes.Fault(
        f"The provider refuses: {code}.",
        outcome=outcomes.Outcome.NOT_DONE_RETRYABLE
        if later
        else outcomes.Outcome.NOT_DONE_PERMANENT,
        topic=topic,
        code=code,
        retry_after=None if wait is None else datetime.timedelta(seconds=wait),
    )


def no_credential() -> outcomes.Fault:
    """The credential is refused."""
    return outcomes.Fault(
        "The token is invalid.", outcome=outcomes.Outcome.AUTH_LOST, topic=outcomes.Topic.AUTH
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trouble:
    """What the next call of a name meets; `done`: after the work was done."""

    fault: outcomes.Fault
    done: bool = False


@dataclasses.dataclass(kw_only=True)
class Rules:
    """How this provider is."""

    boots_after: float = 20.0
    clean_answers: int = 1
    settle: float = 30.0
    replays: bool = False
    prepares: bool = False  # something is made before the machine, by a call of its own
    names_are_unique: bool = True
    children_stay: bool = False
    children_are_bare: bool = False  # what comes with a machine carries no tags
    tags_late: float = 0.0
    shows_late: float = 0.0
    progresses: bool = False
    room: int | None = None
    dies_after: float | None = None
    warnings: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()
    price: contract.Price | None = PRICE  # as a plan tells it


class Pocket:
    """The provider. Give `path` to have another process find the same one."""

    def __init__(
        self,
        *,
        clock: clock_kit.Clock,
        path: pathlib.Path | None = None,
        rules: Rules | None = None,
    ) -> None:
        self.clock = clock
        self.rules = rules or Rules()
        self.trouble: dict[str, list[Trouble]] = {}
        self.before: dict[str, Callable[[], Awaitable[None]]] = {}
        self.is_away = False
        self.is_blind = False  # look-ups show nothing, and say so
        self.is_revoked = False  # the credential is refused
        self._path = path
        self._state: dict[str, Any] = {"machines": {}, "children": {}, "calls": [], "next": 1}
        if path is not None and path.exists():
            self._state = json.loads(path.read_text())

    # What a test asks.

    def calls(self, name: str | None = None) -> list[str]:
        """The calls that were made, in order; of one name alone."""
        made = [one["name"] for one in self._state["calls"]]
        return made if name is None else [one for one in made if one == name]

    def standing(self) -> list[dict[str, Any]]:
        """The machines that are there."""
        return [one for one in self._state["machines"].values() if one["died"] is None]

    def ever(self) -> list[dict[str, Any]]:
        """Every machine that ever was."""
        return list(self._state["machines"].values())

    def hanging(self) -> list[dict[str, Any]]:
        """The children that are there."""
        return [one for one in self._state["children"].values() if one["died"] is None]

    def arm(self, name: str, *faults: outcomes.Fault, done: bool = False) -> None:
        """The next calls of this name meet these."""
        self.trouble.setdefault(name, []).extend(
            Trouble(fault=fault, done=done) for fault in faults
        )

    def lose(self, ref: str) -> None:
        """Somebody deletes a machine behind our back."""
        self._kill(ref)
        self._save()

    def break_down(self, ref: str, failure: str = "it broke") -> None:
        """A machine fails."""
        self._state["machines"][ref]["failure"] = failure
        self._save()

    def plant(
        self,
        owner: contract.Owner | None,
        *,
        name: str,
        region: str = "here",
        hangs: tuple[str, ...] = (),
    ) -> str:
        """A machine that somebody else made, or we did in another life; `hangs` are kinds on it."""
        ref = self._make(owner, name=name, region=region, size="s", image="i", user_data="")
        for kind in hangs:
            self.hang(kind, of=ref, owner=owner)
        self._save()
        return ref

    def hang(self, kind: str, *, of: str | None, owner: contract.Owner | None) -> str:
        """Something that hangs on a machine, or on none; without `owner` it carries no tags."""
        ref = f"{of or 'loose'}-{kind}-{len(self._state['children'])}"
        self._state["children"][ref] = {
            "ref": ref, "kind": kind, "of": of, "died": None, "born": self._now(),
            "owner": None if owner is None else dataclasses.asdict(owner),
        }  # fmt: skip
        self._save()
        return ref

    def take_back(self, child: str) -> None:
        """Somebody detaches it behind our back; it is there on."""
        self._state["children"][child]["of"] = None
        self._save()

    def give(self, child: str, *, to: str) -> None:
        """Somebody attaches it to that machine behind our back."""
        self._state["children"][child]["of"] = to
        self._save()

    def end_child(self, child: str) -> None:
        """It goes by itself, as with its machine, only later."""
        self._state["children"][child]["died"] = self._now()
        self._save()

    def hourly_seconds(self) -> float:
        """For how long machines have been there in all."""
        lives = ((one["died"] or self._now()) - one["born"] for one in self.ever())
        return float(sum(lives))

    # What the driver does.

    @contextlib.asynccontextmanager
    async def met(self, name: str, observer: contract.Observer) -> AsyncIterator[None]:
        """One call: recorded, and met by what is armed for it."""
        await observer(CALLS[name])
        self._state["calls"].append({"at": self._now(), "name": name})
        self._save()
        if self.is_away:
            raise lost()
        if self.is_revoked:
            raise no_credential()
        waiting = self.before.get(name)
        if waiting is not None:
            await waiting()
        armed = self.trouble.get(name) or []
        trouble = armed.pop(0) if armed else None
        if trouble is not None and not trouble.done:
            raise trouble.fault
        yield
        self._save()
        if trouble is not None:
            raise trouble.fault

    def create(self, request: contract.Request) -> contract.Created:
        """Makes the machine, or gives the one of the same token where the provider replays."""
        again = [one for one in self.standing() if one["token"] == request.client_token]
        if again and self.rules.replays:
            return contract.Created(ref=again[0]["ref"], children=self.children_of(again[0]["ref"]))
        taken = [one for one in self.standing() if one["name"] == request.name]
        if taken and self.rules.names_are_unique:
            owner = taken[0]["owner"]
            is_mine = owner is not None and owner["operation"] == request.owner.operation
            raise outcomes.Fault(
                "The name is taken.",
                outcome=outcomes.Outcome.EXISTS_MINE
                if is_mine
                else outcomes.Outcome.EXISTS_FOREIGN,
                topic=outcomes.Topic.STATE,
                code="uniqueness_error",
                ref=taken[0]["ref"],
            )
        if self.rules.room is not None and len(self.standing()) >= self.rules.room:
            raise refused(outcomes.Topic.QUOTA, code="limit")
        ref = self._make(
            request.owner,
            name=request.name,
            region=request.region,
            size=request.size,
            image=request.image,
            user_data=request.first_boot,
            token=request.client_token,
        )
        for kind in ("disk", "address"):
            self.hang(kind, of=ref, owner=None if self.rules.children_are_bare else request.owner)
        self._save()
        crash_points.reach(MADE)
        return contract.Created(
            ref=ref,
            progress=f"action-{ref}" if self.rules.progresses else None,
            children=self.children_of(ref),
        )

    def instances(self) -> list[contract.Instance]:
        """Everything that it shows now."""
        return [self.shown(one) for one in self.standing() if self._is_shown(one)]

    def find(self, ref: str) -> contract.Instance | None:
        """What it shows under the id."""
        one = self._state["machines"].get(ref)
        if one is None or one["died"] is not None or not self._is_shown(one):
            return None
        return self.shown(one)

    def shown(self, one: dict[str, Any]) -> contract.Instance:
        """A machine as it is told."""
        age = self._now() - one["born"]
        power = contract.Power.RUNNING if age >= self.rules.boots_after else contract.Power.STARTING
        failure = one["failure"]
        if failure is not None:
            power = contract.Power.FAILED
        tagged = one["owner"] is not None and age >= self.rules.tags_late
        return contract.Instance(
            ref=one["ref"],
            name=one["name"],
            region=one["region"],
            power=power,
            raw_state=power.value,
            instance_id=one["ref"],
            owner=contract.Owner(**one["owner"]) if tagged else None,
            addresses=("192.0.2.7",),
            children=self.children_of(one["ref"]),
            failure=failure,
        )

    def children_of(self, ref: str) -> tuple[contract.Child, ...]:
        """What hangs on it."""
        return tuple(
            child for one in self.hanging() if (child := self._child_of(one)).attached_to == ref
        )

    def find_child(self, ref: str) -> contract.Child | None:
        """What it tells of one by itself."""
        found = [one for one in self.hanging() if one["ref"] == ref]
        return self._child_of(found[0]) if found else None

    def _child_of(self, one: dict[str, Any]) -> contract.Child:
        holder = self._state["machines"].get(one["of"])
        owner = one["owner"]
        return contract.Child(
            kind=contract.ChildKind(one["kind"]),
            ref=one["ref"],
            name=one["ref"],
            region="here",
            attached_to=None if holder is None or holder["died"] is not None else one["of"],
            owner=None if owner is None else contract.Owner(**owner),
        )

    def delete(self, ref: str) -> None:
        """Takes it away, with its children or without."""
        if ref in self._state["machines"]:
            self._kill(ref)

    def delete_child(self, ref: str) -> None:
        """Takes a child away."""
        child = self._state["children"][ref]
        holder = self._state["machines"].get(child["of"])
        if holder is not None and holder["died"] is None:
            raise refused(outcomes.Topic.STATE, later=True, code="in-use")
        child["died"] = child["died"] or self._now()

    def _kill(self, ref: str) -> None:
        one = self._state["machines"][ref]
        one["died"] = one["died"] or self._now()
        if not self.rules.children_stay:
            for child in self.hanging():
                if child["of"] == ref:
                    child["died"] = self._now()

    def _make(
        self,
        owner: contract.Owner | None,
        *,
        name: str,
        region: str,
        size: str,
        image: str,
        user_data: str,
        token: str = "",
    ) -> str:
        ref = f"m-{self._state['next']}"
        self._state["next"] += 1
        self._state["machines"][ref] = {
            "ref": ref,
            "name": name,
            "owner": None if owner is None else dataclasses.asdict(owner),
            "region": region,
            "size": size,
            "image": image,
            "user_data": user_data,
            "token": token,
            "born": self._now(),
            "died": None,
            "failure": None,
        }
        return ref

    def _is_shown(self, one: dict[str, Any]) -> bool:
        return bool(self._now() - one["born"] >= self.rules.shows_late)

    def _now(self) -> float:
        return self.clock.now().timestamp()

    def _save(self) -> None:
        if self._path is not None:
            aside = self._path.with_suffix(".new")
            aside.write_text(json.dumps(self._state))
            aside.replace(self._path)


class Driver:
    """The contract over a pocket provider."""

    provider = PROVIDER
    capabilities = frozenset({contract.Capability.REBOOT, contract.Capability.PRICE})
    calls: Sequence[contract.ApiCall] = tuple(CALLS.values())

    def __init__(self, pocket: Pocket, *, observer: contract.Observer) -> None:
        self._pocket = pocket
        self._observer = observer

    @property
    def lookup(self) -> contract.LookupRules:
        rules = self._pocket.rules
        return contract.LookupRules(
            clean_answers=rules.clean_answers,
            settle=datetime.timedelta(seconds=rules.settle),
            replays=rules.replays,
        )

    async def validate(self) -> contract.Validation:
        async with self._met(LIST):
            return contract.Validation(account="pocket", principal="test")

    async def offer(self) -> contract.Offer:
        return contract.Offer(regions=("here",), sizes=())

    async def plan(self, request: contract.Request) -> contract.Plan:  # noqa: ARG002
        async with self._met(PLAN):
            rules = self._pocket.rules
            return contract.Plan(
                price=rules.price, warnings=rules.warnings, refusals=rules.refusals
            )

    async def create(self, request: contract.Request) -> contract.Created:
        if self._pocket.rules.prepares:
            async with self._met(PREPARE):
                pass
        async with self._met(CREATE):
            return self._pocket.create(request)

    async def poll(self, created: contract.Created) -> contract.Progress:
        async with self._met(POLL):
            found = self._pocket.find(created.ref)
            is_up = found is not None and found.power is contract.Power.RUNNING
            return contract.Progress.DONE if is_up else contract.Progress.RUNNING

    async def find(self, owner: contract.Owner, *, name: str, region: str) -> contract.Sightings:  # noqa: ARG002
        async with self._met(FIND):
            return contract.Sightings(
                is_complete=not self._pocket.is_blind,
                instances=tuple(
                    one
                    for one in ([] if self._pocket.is_blind else self._pocket.instances())
                    if one.name == name
                    or (one.owner is not None and one.owner.operation == owner.operation)
                ),
            )

    async def describe(self, ref: str, *, region: str) -> contract.Instance | None:  # noqa: ARG002
        async with self._met(DESCRIBE):
            return self._pocket.find(ref)

    async def delete(self, ref: str, *, region: str) -> None:  # noqa: ARG002
        async with self._met(DELETE):
            self._pocket.delete(ref)

    async def reboot(self, ref: str, *, region: str) -> None:  # noqa: ARG002
        async with self._met(REBOOT):
            pass

    async def inventory(self, installation: str) -> contract.Inventory:
        async with self._met(LIST):
            return contract.Inventory(
                machines=tuple(
                    one
                    for one in self._pocket.instances()
                    if one.owner is not None and one.owner.installation == installation
                ),
                children=tuple(
                    child
                    for one in self._pocket.hanging()
                    if (child := self._pocket.find_child(one["ref"])) is not None
                    and child.owner is not None
                    and child.owner.installation == installation
                ),
            )

    async def describe_child(self, child: contract.Child) -> contract.Child | None:
        async with self._met(DESCRIBE_CHILD):
            return self._pocket.find_child(child.ref)

    async def delete_child(self, child: contract.Child) -> None:
        async with self._met(DELETE_CHILD):
            self._pocket.delete_child(child.ref)

    async def create_child(self, *_: Any, **__: Any) -> contract.Child:
        raise NotImplementedError

    async def attach(self, child: contract.Child, *, to: str) -> None:
        raise NotImplementedError

    async def detach(self, child: contract.Child) -> None:
        raise NotImplementedError

    async def console(self, ref: str, *, region: str) -> str | None:  # noqa: ARG002
        return None

    async def close(self) -> None:
        """Nothing is held."""

    def _met(self, name: str) -> contextlib.AbstractAsyncContextManager[None]:
        return self._pocket.met(name, self._observer)
