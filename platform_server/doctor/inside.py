"""What a running engine looks at in itself, and its one route.

The questions of the store at rest, and those that only an engine can answer: how long a commit
takes, who holds the store where it is busy, and whether the Agents that listen can be reached from
here (Z-33). Bounded: however many nodes there are, so many are asked and no more, those that are
not ready first; however many callers there are, one look is taken and shared.
"""

import asyncio
import dataclasses
import functools
import os
import pathlib
import shutil
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from platform_server.doctor import population, stored
from platform_server.endpoints import calls, routes
from platform_server.nodes import asking, configured
from platform_server.settings import layers, listing
from platform_server.store import contract, opening
from runtime_kit import clock as clock_kit
from runtime_kit import processes, reports, side_by_side
from wire_protocol import admin, findings, ids, pins, product

PATH: Final = "/api/v1/platform/checkup"
API: Final = "api"
_SECONDS: Final = 8.0
_ASK_SECONDS: Final = 3.0
MOST_ASKED: Final = 64
_AT_ONCE: Final = 32
_SHOWN: Final = 5

Found = tuple[findings.Finding, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Inside:
    """The parts of an engine that are looked at."""

    store: contract.Store
    url: str  # of the store; may hold a password, and is never shown
    settings: Callable[[], layers.Loaded]  # read anew: what another start would find
    running: layers.Loaded
    clock: clock_kit.Clock
    operators: configured.ConfiguredNodes
    asker: asking.Asker | None
    api_url: str
    api_pins: Callable[[], Sequence[pins.Pin]]


class Checkup:
    """One look at a time, shared by whoever asks meanwhile."""

    def __init__(self, inside: Inside) -> None:
        self._inside = inside
        self._under_way: asyncio.Task[list[findings.Finding]] | None = None

    async def look(self) -> list[findings.Finding]:
        """Every finding, in a fixed order."""
        if self._under_way is None or self._under_way.done():
            self._under_way = asyncio.create_task(_look(self._inside), name="checkup")
        return await asyncio.shield(self._under_way)

    async def answer(self, call: calls.Call[None, routes.NoQuery]) -> calls.Reply:
        """The health body."""
        del call
        found = await self.look()
        return calls.Reply(body=findings.document(found, version=product.VERSION), status=200)


def served(checkup: Checkup) -> tuple[routes.Route, ...]:
    """The route of this module."""

    async def answer(call: calls.Call[None, routes.NoQuery]) -> calls.Reply:
        return await checkup.answer(call)

    return (
        routes.Route(
            method="GET",
            path=PATH,
            summary="Look at the Platform from inside: store, keys, nodes, whether Agents answer.",
            handler=answer,
            answer=admin.Checkup,
        ),
    )


async def _look(inside: Inside) -> list[findings.Finding]:
    now = inside.clock.now()
    store = inside.store
    plan: Mapping[str, Callable[[], Awaitable[Found]]] = {
        "store": functools.partial(_store, inside),
        "trust-keys": functools.partial(_one, functools.partial(stored.trust_keys, store, now=now)),
        "certificates": functools.partial(
            _one, functools.partial(stored.certificates, store, now=now)
        ),
        "clock": functools.partial(_one, functools.partial(stored.clock, store, now=now)),
        "engines": functools.partial(_one, functools.partial(population.engines, store, now=now)),
        "leases": functools.partial(_one, functools.partial(population.leases, store, now=now)),
        "nodes": functools.partial(_one, functools.partial(population.nodes, store)),
        "agents": functools.partial(_agents, inside),
        "mesh": functools.partial(_one, functools.partial(population.mesh, store, now=now)),
        "backup": functools.partial(
            _one,
            functools.partial(
                population.backup,
                store,
                now=now,
                environment=inside.running.settings.platform.environment,
            ),
        ),
        API: functools.partial(_api, inside),
        "settings": functools.partial(_settings, inside),
    }
    jobs = [side_by_side.Job(name=name, work=work, seconds=_SECONDS) for name, work in plan.items()]
    found = await side_by_side.run(jobs, late=late, broken=broken)
    return [finding for several in found for finding in several]


async def _one(ask: Callable[[], Awaitable[findings.Finding]]) -> Found:
    return (await ask(),)


async def _store(inside: Inside) -> Found:
    first = await stored.schema(inside.store, clock=inside.clock)
    if first.status is findings.Status.FAILED:
        return (_with_holder(inside, first),)
    written = await _commit(inside)
    found = await inside.store.sizes()
    return (
        first,
        written,
        await stored.integrity(inside.store, database_bytes=found.database_bytes),
        stored.sizes(found, free_disk_bytes=_free(inside.url)),
    )


async def _commit(inside: Inside) -> findings.Finding:
    """How long a write takes, with everything but the commit's last step."""
    name = "store-writes"
    started = inside.clock.monotonic()

    async def touch(tx: contract.Tx) -> None:
        await tx.execute("UPDATE platform_values SET value = value WHERE name = 'platform_id'")

    try:
        await inside.store.rehearse(touch)
    except contract.StoreError as fault:
        return _with_holder(inside, stored.of_fault(name, fault))
    took = round((inside.clock.monotonic() - started) * 1000, 1)
    return findings.ok(name, f"It takes writes ({took} ms).", facts={"write_ms": took})


def _with_holder(inside: Inside, finding: findings.Finding) -> findings.Finding:
    """Names the programs that hold a SQLite store, where it is busy."""
    if inside.store.dialect is not contract.Dialect.SQLITE:
        return finding
    path = opening.sqlite_path(inside.url)
    files = (path, path.with_name(f"{path.name}-shm"))
    holders = sorted(
        {
            pid
            for file in files
            for pid in processes.holders_of_records(file)
            if pid not in (os.getpid(), 0)
        }
    )
    if not holders:
        return finding
    named = ", ".join(processes.name_of(pid) for pid in holders[:_SHOWN])
    return dataclasses.replace(
        finding,
        detail=f"{finding.detail.rstrip('.')}. It is held by {named}.",
        facts={**finding.facts, "holders": holders[:_SHOWN]},
    )


def _free(url: str) -> int | None:
    if not url.startswith("sqlite:"):
        return None
    try:
        return shutil.disk_usage(pathlib.Path(opening.sqlite_path(url)).parent).free
    except OSError:
        return None


async def _agents(inside: Inside) -> Found:
    """Asks Agents that listen, those that are not ready first."""
    name = "agents"
    if inside.asker is None:
        return (findings.skipped(name, "Nodes are turned off."),)
    asker = inside.asker
    targets, total = await inside.store.read(functools.partial(_targets, inside.operators))
    if not targets:
        return (findings.ok(name, "No node listens; those that dial out need no open port."),)
    places = asyncio.Semaphore(_AT_ONCE)

    async def ask(target: asking.Target, trusted: bool) -> str | None:  # noqa: FBT001 - as read
        async with places:
            try:
                heard = await asker.ask(target, timeout_s=_ASK_SECONDS, trusted=trusted)
            except asking.NoAnswer as fault:
                return str(fault)
        return None if heard.is_from(target.node_id) else "another node answers there"

    said = await asyncio.gather(*(ask(target, trusted) for target, trusted in targets))
    silent = {
        str(target.node_id): why
        for (target, _), why in zip(targets, said, strict=True)
        if why is not None
    }
    facts: dict[str, Any] = {"listening": total, "asked": len(targets), "silent": silent}
    if not silent:
        more = "" if len(targets) == total else f" of {total}"
        return (findings.ok(name, f"{len(targets)}{more} answer from here.", facts=facts),)
    first, why = next(iter(silent.items()))
    return (
        findings.transient(
            name,
            f"{len(silent)} of {len(targets)} Agents that listen cannot be reached from here; "
            f"{first}: {why}.",
            command=f"enlist doctor   (on {first}; then open its port in the firewall)",
            facts=facts,
        ),
    )


async def _targets(
    operators: configured.ConfiguredNodes, tx: contract.Tx
) -> tuple[Sequence[tuple[asking.Target, bool]], int]:
    where = "url IS NOT NULL AND state <> 'removed'"
    rows = await tx.fetch_all(
        "SELECT node_id, url, pin, certificate_pem FROM nodes "  # noqa: S608 - constants
        f"WHERE {where} ORDER BY CASE state WHEN 'ready' THEN 1 ELSE 0 END, node_id LIMIT ?",
        MOST_ASKED,
    )
    counted = await tx.fetch_one(f"SELECT COUNT(*) AS n FROM nodes WHERE {where}")  # noqa: S608
    given = [
        (asking.Target(node_id=node_id, url=node.url, pin=node.pin), True)
        for node_id, node in list(operators.nodes.items())[:MOST_ASKED]
    ]
    enrolled = [
        (
            asking.Target(
                node_id=ids.NodeId(row["node_id"]),
                url=row["url"],
                pin=pins.Pin(row["pin"]),
                certificate_pem=row["certificate_pem"],
            ),
            False,
        )
        for row in rows
        if not operators.holds(ids.NodeId(row["node_id"]))
    ]
    total = len(operators.nodes) + (0 if counted is None else int(counted["n"]))
    return [*given, *enrolled][:MOST_ASKED], total


async def _api(inside: Inside) -> Found:
    """Where the API says that it is; whether it is there is seen from outside."""
    facts = {"url": inside.api_url, "pins": list(inside.api_pins())}
    return (findings.ok(API, f"Served at {inside.api_url}.", facts=facts),)


async def _settings(inside: Inside) -> Found:
    """What is set by hand, and whether another start would find the same."""
    name = "settings"
    facts = {"set": [dict(one) for one in set_by_hand(inside.running)]}
    try:
        anew = await asyncio.to_thread(inside.settings)
    except layers.InvalidSettings as fault:
        return (
            findings.needs_operator(
                name,
                f"The settings as they are now would be refused at the next start: {fault}",
                command="enlist serve --print-config",
                facts=facts,
            ),
        )
    if anew.settings != inside.running.settings:
        changed = sorted(
            one.name
            for one, other in zip(listing.lines(anew), listing.lines(inside.running), strict=False)
            if one.name == other.name and one.value != other.value
        )
        return (
            findings.warning(
                name,
                f"Settings were changed since this engine started ({', '.join(changed[:_SHOWN])}): "
                "they count from the next.",
                command=f"kill -HUP {os.getppid()}   (replaces the engine, ports stay open)",
                facts=facts,
            ),
        )
    count = len(facts["set"])
    return (findings.ok(name, f"{count} set by hand, all known.", facts=facts),)


def set_by_hand(loaded: layers.Loaded) -> list[Mapping[str, Any]]:
    """The settings that are not the default, with their sources; passwords are dots."""
    return [
        {"name": line.name, "value": line.value, "source": line.source}
        for line in listing.lines(loaded)
        if line.source != layers.DEFAULT
    ]


def late(job: side_by_side.Job[Found]) -> Found:
    """The finding for a question that was not answered in time."""
    return (findings.transient(job.name, f"No answer within {job.seconds:g} s."),)


def broken(job: side_by_side.Job[Found], error: Exception) -> Found:
    """The finding for a question that broke."""
    if isinstance(error, contract.StoreError):
        return (stored.of_fault(job.name, error),)
    report = reports.write(error, environment=os.environ)
    return (
        findings.fault(
            job.name,
            sentence=f"It could not be looked at. {report.sentence}",
            report_id=report.report_id,
        ),
    )
