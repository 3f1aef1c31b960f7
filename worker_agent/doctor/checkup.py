"""All that is looked at on a worker, in the order in which it is told.

`of` gives the questions, each with its limit, and what may be mended; running them, telling them
and packing them is the command line's part.
"""

import asyncio
import functools
import pathlib
from collections.abc import Awaitable, Callable, Iterator, Sequence

from runtime_kit import mends, side_by_side
from wire_protocol import findings
from worker_agent.doctor import (
    files,
    ground,
    legs,
    mesh_place,
    names,
    parts,
    path_mtu,
    running,
    session_leg,
    several,
)
from worker_agent.doctor import seen as seen_kit
from worker_agent.settings import agent_file, paths

PLACE = "worker"
_QUICK_SECONDS = 5.0
_NETWORK_SECONDS = 12.0

Found = tuple[findings.Finding, ...]
Job = side_by_side.Job[Found]


class Checkup:
    """One worker, looked at once."""

    place = PLACE

    def __init__(self, where: paths.Paths, *, around: legs.Around) -> None:
        self._where = where
        self._around = around
        self._seen: seen_kit.Seen | None = None

    @property
    def title(self) -> str:
        """Which worker this is, for people."""
        agent = None if self._seen is None else self._seen.agent
        who = "worker" if agent is None else f"worker {agent.node_id}"
        return f"{who}, data directory {self._where.folder}"

    def jobs(self) -> Sequence[Job]:
        """Reads the files, and gives every question that follows from them."""
        try:
            if not files.is_visible(self._where):
                return [self._closed()]
            self._seen = seen = seen_kit.look(self._where)
        except OSError:
            return [self._closed()]
        now = self._around.clock.now()
        enrollment, gateway = legs.enrollment_legs(seen), legs.gateway_legs(seen)
        return [
            _threaded("files", functools.partial(files.files, seen)),
            _threaded("disk", functools.partial(ground.disk, seen)),
            _threaded("joined", functools.partial(ground.joined, seen)),
            _threaded("identity", functools.partial(ground.identity, seen, now=now)),
            _threaded("trust", functools.partial(ground.trust, seen, now=now)),
            _job("agent", functools.partial(running.agent, seen, around=self._around)),
            _job("port", functools.partial(running.port, seen)),
            _job("session", functools.partial(session_leg.session, seen)),
            _job("mesh", functools.partial(mesh_place.mesh, seen, around=self._around)),
            *self._network_jobs(enrollment, gateway, seen=seen),
        ]

    def _network_jobs(
        self, enrollment: Sequence[legs.Leg], gateway: Sequence[legs.Leg], *, seen: seen_kit.Seen
    ) -> Iterator[Job]:
        around = self._around
        both = [*enrollment, *gateway]
        if not both:
            return
        yield _job("proxy", functools.partial(names.proxies, both, around=around), network=True)
        enrolling = functools.partial(legs.trust_question, seen=seen, around=around)
        doors = several.Several(enrollment, ask=enrolling)
        gateways = several.Several(gateway, ask=functools.partial(legs.gateway, around=around))
        ways = [*((leg, doors) for leg in enrollment), *((leg, gateways) for leg in gateway)]
        for leg, those in ways:
            look = functools.partial(_names, leg, those=those, around=around)
            yield _job(f"dns.{leg.name}", look, network=True)
        for leg, those in ways:
            yield _job(leg.name, functools.partial(those.of, leg), network=True)
        dials_out = agent_file.Connectivity.DIAL_OUT
        if not gateway and seen.agent is not None and seen.agent.connectivity is dials_out:
            yield _job("gateway", session_leg.no_gateway)
        if gateway and seen.identity.certificate is not None:
            ask = functools.partial(session_leg.admission, seen, around=around)
            yield _job("admission", ask, network=True)
        if enrollment:
            compare = functools.partial(path_mtu.path_mtu, enrollment[0], around=around)
            yield _job("path-mtu", compare, network=True)

    def mends(self, found: Sequence[findings.Finding]) -> Sequence[mends.Mend]:
        """What may be put right by itself: owners and modes first, then what needs them right."""
        seen = self._seen
        if seen is None:
            return []
        possible = files.mends_of(seen)
        wanted = {finding.command for finding in found}
        for verb, detail in (
            ("refresh-trust", "asks the Platform for its trust keys"),
            ("renew", "renews this machine's certificate with its own key"),
        ):
            command = f"enlist worker {verb}"
            if command in wanted:
                possible.append(
                    mends.Mend(
                        action="run",
                        target=command,
                        detail=detail,
                        apply=mends.own_command(
                            "operator_cli",
                            ["worker", verb, "--data-dir", str(self._where.folder)],
                            uid=seen.uid,
                            gid=seen.gid,
                        ),
                    )
                )
        return possible

    def parts(self) -> Iterator[tuple[str, bytes]]:
        """What a support archive holds of this worker, without a secret."""
        if self._seen is not None:
            yield from parts.of(self._seen)

    def _closed(self) -> Job:
        async def closed() -> Found:
            return (
                findings.needs_operator(
                    "files",
                    f"{self._where.folder} cannot be looked into by this account.",
                    command=f"sudo enlist doctor --data-dir {self._where.folder}",
                ),
            )

        return _job("files", closed)


def of(data_dir: pathlib.Path, *, around: legs.Around) -> Checkup:
    """The checkup of the worker that keeps its data there."""
    return Checkup(paths.Paths(folder=data_dir), around=around)


async def _names(leg: legs.Leg, *, those: several.Several, around: legs.Around) -> Found:
    return await those.judged(await names.names(leg, around=around))


def _job(name: str, work: Callable[[], Awaitable[Found]], *, network: bool = False) -> Job:
    return side_by_side.Job(
        name=name, work=work, seconds=_NETWORK_SECONDS if network else _QUICK_SECONDS
    )


def _threaded(name: str, look: Callable[[], Found]) -> Job:
    """A file system may hang as a network does."""
    return _job(name, functools.partial(asyncio.to_thread, look))
