"""All that is looked at on a Platform's machine, in the order in which it is told.

A running engine looks into itself and is asked over its local socket; of one that does not run the
store and the settings are read from its files, and the findings say so.
"""

import asyncio
import contextlib
import functools
import json
import pathlib
import shutil
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from platform_server.doctor import inside, outside, ports, rows, stopped, stored
from platform_server.settings import layers
from platform_server.store import contract, opening
from runtime_kit import clock as clock_kit
from runtime_kit import dial, file_rules, mends, processes, side_by_side
from wire_protocol import findings, strict_json

_QUICK_SECONDS: Final = 5.0
_SECONDS: Final = 14.0
_LOG_BYTES: Final = 262_144
_PARTS: Final = {
    "platform.json": "/api/v1/platform",
    "nodes.json": "/api/v1/nodes?limit=500",
    "enrollment-attempts.json": "/api/v1/enrollments/audit?limit=200",
    "action-log.json": "/api/v1/audit?limit=200",
}

Found = tuple[findings.Finding, ...]
Job = side_by_side.Job[Found]


class Checkup:
    """One Platform, looked at once."""

    place = "platform"

    def __init__(
        self,
        places: outside.Places,
        *,
        settings: Callable[[], layers.Loaded],
        clock: clock_kit.Clock,
    ) -> None:
        self._places = places
        self._settings = settings
        self._clock = clock

    @property
    def title(self) -> str:
        """Which Platform this is, for people."""
        return f"platform, data directory {self._places.folder}"

    def jobs(self) -> Sequence[Job]:
        """Every question; those to the engine where one runs."""
        places = self._places
        try:
            next(places.folder.iterdir(), None)
        except OSError:
            return [_job("files", self._closed)]
        known = [
            _threaded("files", functools.partial(outside.files, places)),
            _threaded("disk", functools.partial(outside.disk, places)),
            _threaded("process", functools.partial(outside.process, places)),
        ]
        if outside.is_running(places):
            return [
                *known,
                _job("engine", self._engine, seconds=_SECONDS),
                _job("port", self._ports, seconds=_SECONDS),
            ]
        return [
            *known,
            _threaded("settings", self._stopped_settings),
            _job("store", self._stopped_store, seconds=_SECONDS),
        ]

    def mends(self, found: Sequence[findings.Finding], /) -> Sequence[mends.Mend]:
        """What may be put right by itself."""
        del found
        try:
            return outside.mends_of(self._places)
        except OSError:
            return []

    def parts(self) -> Iterator[tuple[str, bytes]]:
        """What a support archive holds of this Platform, without a secret."""
        yield "files.txt", file_rules.listing(self._places.folder).encode()
        with contextlib.suppress(layers.InvalidSettings):
            content = inside.set_by_hand(self._settings())
            yield "settings.json", json.dumps(content, indent=2, default=str).encode()
        if outside.is_running(self._places):
            yield from asyncio.run(self._asked_parts())
        else:
            yield from asyncio.run(self._stored_parts())
        log = self._log()
        if log is not None:
            yield "log.txt", log

    async def _engine(self) -> Found:
        try:
            return findings.parse(await outside.ask(self._places, inside.PATH))
        except outside.NotAnswered as fault:
            return (self._not_answered(fault),)
        except strict_json.Malformed as fault:
            return (
                findings.needs_operator(
                    "engine",
                    f"The engine is of another version than this command: {fault}",
                    command="kill -HUP PID   (of enlist serve; replaces the engine)",
                ),
            )

    def _not_answered(self, fault: outside.NotAnswered) -> findings.Finding:
        if fault.closed:
            return findings.needs_operator(
                "engine",
                f"{fault}.",
                command=f"sudo enlist doctor --data-dir {self._places.folder}",
            )
        return findings.transient(
            "engine",
            f"{fault}. It may be starting, or be started again and again: its log says why.",
            command="enlist doctor   (again in a minute)",
        )

    async def _ports(self) -> Found:
        try:
            content = json.loads(await outside.ask(self._places, "/api/v1/platform"))
        except (outside.NotAnswered, ValueError):
            return (findings.skipped("port", "The engine does not say which ports it has."),)
        known = [*ports.ports_of(content), *await self._api_port()]
        hosts = []
        for one in known:
            with contextlib.suppress(dial.InvalidUrl):
                hosts.append(dial.parse_https_origin(one.url).host)
        found = await asyncio.gather(
            ports.names(list(dict.fromkeys(hosts))),
            *(ports.port(one, clock=self._clock) for one in known),
        )
        return tuple(finding for several in found for finding in several)

    async def _api_port(self) -> list[ports.Port]:
        """The API's port where it speaks TLS; the engine's one look is shared, so asked twice."""
        try:
            found = findings.parse(await outside.ask(self._places, inside.PATH))
        except (outside.NotAnswered, strict_json.Malformed):
            return []
        facts = next((one.facts for one in found if one.name == inside.API), {})
        url = str(facts.get("url", ""))
        if not url.startswith("https:"):
            return []
        return [ports.Port(name="api", url=url, pins=tuple(facts.get("pins", ())))]

    def _stopped_settings(self) -> Found:
        try:
            loaded = self._settings()
        except layers.InvalidSettings as fault:
            return (
                findings.needs_operator(
                    "settings", str(fault), command="enlist serve --print-config"
                ),
            )
        facts = {"set": [dict(one) for one in inside.set_by_hand(loaded)]}
        return (
            findings.ok(
                "settings",
                f"{len(facts['set'])} set by hand, all known; flags of the next start not counted.",
                facts=facts,
            ),
        )

    def _url(self) -> str:
        try:
            given = self._settings().settings.store.database_url
        except layers.InvalidSettings:
            given = None
        return given or f"sqlite:///{self._places.folder}/enlist.db"

    async def _stopped_store(self) -> Found:
        url = self._url()
        try:
            async with stopped.opened(url) as store:
                return await self._at_rest(store, url=url)
        except ValueError as fault:
            return (
                findings.needs_operator("store", f"{fault}", command="enlist serve --print-config"),
            )
        except contract.StoreError as fault:
            return (stored.of_fault("store", fault),)

    async def _at_rest(self, store: stored.Readable, *, url: str) -> Found:
        now = self._clock.now()
        first = await stored.schema(store, clock=self._clock)
        if first.status is findings.Status.FAILED:
            return (first,)
        sizes = _sizes(url)
        found = [first, await stopped.master_key(store, path=self._places.master_key)]
        if sizes is not None:
            free = shutil.disk_usage(self._places.folder).free
            found += [
                await stored.integrity(store, database_bytes=sizes.database_bytes),
                stored.sizes(sizes, free_disk_bytes=free),
            ]
        found += [
            await stored.trust_keys(store, now=now),
            await stored.certificates(store, now=now),
            await stored.clock(store, now=now),
        ]
        return tuple(found)

    async def _asked_parts(self) -> list[tuple[str, bytes]]:
        made: list[tuple[str, bytes]] = []
        for name, target in _PARTS.items():
            try:
                content: Mapping[str, Any] = json.loads(await outside.ask(self._places, target))
            except (outside.NotAnswered, ValueError) as fault:
                made.append((name, f"{fault}\n".encode()))
            else:
                made.append((name, json.dumps(content, indent=2).encode()))
        return made

    async def _stored_parts(self) -> list[tuple[str, bytes]]:
        try:
            async with stopped.opened(self._url()) as store:
                found = await rows.read(store)
        except (contract.StoreError, ValueError) as fault:
            return [("store.txt", f"{fault}\n".encode())]
        return [("store.json", json.dumps(found, indent=2, default=str).encode())]

    def _log(self) -> bytes | None:
        """The end of the log, where it goes to a file or to the journal."""
        pid = processes.holder_of_flock(self._places.host_lock)
        return None if pid is None else processes.log_of(pid, most_bytes=_LOG_BYTES)

    async def _closed(self) -> Found:
        return (
            findings.needs_operator(
                "files",
                f"{self._places.folder} cannot be looked into by this account.",
                command=f"sudo enlist doctor --data-dir {self._places.folder}",
            ),
        )


def _sizes(url: str) -> contract.Sizes | None:
    if not url.startswith("sqlite:"):
        return None
    path = opening.sqlite_path(url)

    def size(of: pathlib.Path) -> int:
        try:
            return of.stat().st_size
        except OSError:
            return 0

    wal = path.with_name(f"{path.name}-wal")
    return contract.Sizes(database_bytes=size(path), wal_bytes=size(wal), free_bytes=0)


def _job(
    name: str, work: Callable[[], Awaitable[Found]], *, seconds: float = _QUICK_SECONDS
) -> Job:
    return side_by_side.Job(name=name, work=work, seconds=seconds)


def _threaded(name: str, look: Callable[[], Found]) -> Job:
    return _job(name, functools.partial(asyncio.to_thread, look))
