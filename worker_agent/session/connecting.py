"""One try to open the session: every address, and every key with which this machine may be known.

The files are read anew for each address, since other commands write them, and so does a session
whose confirmation was not answered. The present certificate is
shown first; only where the gateway does not know it, the next one and then the former ones (a
renewal whose end was lost, a Platform put back from a backup). What comes of a try is a link that
is open, or a failure with what to do about it.
"""

import dataclasses
import datetime
import enum

from runtime_kit import clock as clock_kit
from runtime_kit import failures as network
from runtime_kit import pinned_handshake
from runtime_kit.mux import link as links
from wire_protocol import session, strict_json
from worker_agent.identity import replacing
from worker_agent.session import opening, outside, targets
from worker_agent.settings import agent_file, documents, failures, join_file, paths, starting

_NEEDS_OPERATOR = frozenset(
    {
        session.Refusal.GENERATION_CONFLICT,
        session.Refusal.NODE_REMOVED,
        session.Refusal.WORKER_NEWER,
    }
)
_PASSING = frozenset({session.Refusal.NOT_NOW.value, "busy", "too-slow"})


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """An open session: its link, what the Platform said, and by what this machine proved itself."""

    link: links.Link
    welcome: session.Welcome
    welcomed_at: float  # monotonic
    url: str
    proof: replacing.Candidate

    def platform_time(self, clock: clock_kit.Clock) -> datetime.datetime:
        """The Platform's time now; this machine's own clock may be wrong by years."""
        passed = datetime.timedelta(seconds=clock.monotonic() - self.welcomed_at)
        return self.welcome.now + passed


class Obstacle(enum.Enum):
    """What stood in the way of a try."""

    PASSING = "passing"  # it may be gone at the next try
    STANDING = "standing"  # somebody must do something; tried rarely all the same
    OTHER_KEY = "other-key"  # whoever answers shows a key that is not the gateway's


class NotJoined(failures.NeedsOperator):
    """The files of a join are not there; the machine is no node, or no longer."""


class NodeRemoved(failures.NeedsOperator):
    """The Platform has removed this node; to be one again it is allowed and joins anew."""


class NotOpened(Exception):
    """A try came to nothing; the text is for people."""

    def __init__(
        self, reason: str, *, obstacle: Obstacle, retry_after_s: float | None = None
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.obstacle = obstacle
        self.retry_after_s = retry_after_s

    @property
    def kind(self) -> network.Kind:
        """Which of the three kinds of failure it is."""
        if self.obstacle is Obstacle.PASSING:
            return network.Kind.TRANSIENT
        return network.Kind.NEEDS_OPERATOR


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What a try stands on."""

    gateway: targets.Gateway
    who: opening.Self
    proofs: tuple[replacing.Candidate, ...]


@dataclasses.dataclass(slots=True)
class _Doubt:
    """Whether something that happened in this try may explain a generation conflict by itself.

    A confirmation without an answer may still be under way, and an engine that does not know a
    certificate has not heard the news: the next try tells. Stopping for good needs more than that.
    """

    is_there: bool = False

    def arises(self) -> None:
        """It is there from now on."""
        self.is_there = True


class Connecting:
    """Makes tries; remembers which address worked last."""

    def __init__(
        self, where: paths.Paths, *, around: outside.Outside, answer: links.Answer
    ) -> None:
        self._where = where
        self._around = around
        self._answer = answer
        self._last_good: str | None = None

    def known(self) -> Known:
        """Reads the files; raises `NotOpened` without a gateway, `NeedsOperator` for damage."""
        join, agent = read(self._where)
        held = self._around.trust.held
        gateway = targets.gateway_of(join, held=held, agent=agent)
        if gateway is None:
            raise NotOpened(
                "The Platform has named no gateway to dial out to. It opens one with: "
                "enlist serve --gateway-port",
                obstacle=Obstacle.STANDING,
            )
        who = opening.Self(
            node_id=agent.node_id,
            instance=self._around.instance,
            statement=held.statement.number,
            generation=agent.generation,
        )
        return Known(gateway=gateway, who=who, proofs=replacing.candidates(self._where))

    async def open_session(self, *, by: str | None = None) -> Opened:
        """Opens the session, by the candidate of that name alone where one is given.

        Raises `NotOpened`, or `NeedsOperator` where trying again would be wrong. A file that cannot
        be read just now is tried again: the Agent runs on what it had in memory.
        """
        return await self._each(session.Purpose.SESSION, by=by)

    async def open_errand(self, *, by: str | None = None) -> Opened:
        """Opens a connection for one question; raises as `open_session` does."""
        return await self._each(session.Purpose.ERRAND, by=by)

    async def _each(self, purpose: session.Purpose, *, by: str | None) -> Opened:
        """Tries one address after the other: the one that worked last, then the rest by chance.

        So the engines of a Platform share the machines, and not all wait for the same dead one.
        """
        known = self._known(purpose, by=by)
        urls = list(known.gateway.urls)
        self._around.chance.shuffle(urls)
        urls.sort(key=lambda url: url != self._last_good)
        faults: list[NotOpened] = []
        doubt = _Doubt()
        for number, url in enumerate(urls):
            try:
                if number > 0:
                    known = self._known(purpose, by=by)
                opened = await self._at(url, known=known, purpose=purpose, doubt=doubt)
            except NotOpened as not_opened_here:
                faults.append(not_opened_here)
            else:
                self._last_good = url
                return opened
        # A passing fault at one address leaves hope that another try finds the Platform there.
        for obstacle in Obstacle:
            for fault in faults:
                if fault.obstacle is obstacle:
                    raise fault
        raise AssertionError("a known gateway has an address")

    def _known(self, purpose: session.Purpose, *, by: str | None) -> Known:
        """What the try stands on, with the one candidate alone that is wanted."""
        try:
            known = self.known()
        except NotJoined:
            raise
        except failures.NeedsOperator as failure:
            if purpose is session.Purpose.ERRAND:
                raise
            raise NotOpened(str(failure), obstacle=Obstacle.STANDING) from failure
        if by is None:
            return known
        proofs = tuple(proof for proof in known.proofs if proof.name == by)
        if not proofs:
            raise NotOpened(f"There is no {by} certificate.", obstacle=Obstacle.STANDING)
        return dataclasses.replace(known, proofs=proofs)

    async def _at(
        self, url: str, *, known: Known, purpose: session.Purpose, doubt: _Doubt
    ) -> Opened:
        """One address, with each proof until the gateway knows one."""
        refused: NotOpened | None = None
        for proof in known.proofs:
            try:
                link = await self._around.connect(
                    url, pins=known.gateway.pins, proof=proof, answer=self._answer
                )
            except network.NetworkFailure as error:
                raise not_opened(error) from error
            try:
                welcome = await self._open(link, known=known, purpose=purpose, doubt=doubt)
            except failures.NeedsOperator as failure:
                if refused is None or proof.name != "former":
                    raise
                # A Platform that knows the former as a former one knows the present one as well,
                # in a moment: it was refused where the news had not come yet.
                raise refused from failure
            except links.ClientRefused as error:
                doubt.arises()
                refused = refused or NotOpened(
                    f"{url} does not know this machine's certificate ({error.reason}). Is the node "
                    "still there? See on the Platform: enlist nodes show "
                    f"{known.who.node_id}",
                    obstacle=Obstacle.STANDING,
                )
                continue
            return Opened(
                link=link,
                welcome=welcome,
                welcomed_at=self._around.clock.monotonic(),
                url=url,
                proof=proof,
            )
        raise refused or AssertionError("a joined machine has a certificate to show")

    async def _open(
        self, link: links.Link, *, known: Known, purpose: session.Purpose, doubt: _Doubt
    ) -> session.Welcome:
        try:
            if purpose is session.Purpose.ERRAND:
                return await opening.greet(link, who=known.who, purpose=purpose)
            return await opening.open_session(
                link,
                who=known.who,
                where=self._where,
                clock=self._around.clock,
                confirming=doubt.arises,
            )
        except links.ClientRefused:
            raise
        except links.Refused as error:
            link.close(reason="refused")
            if error.code == session.Refusal.GENERATION_CONFLICT and doubt.is_there:
                raise NotOpened(
                    f"The Platform refused the session: {error}", obstacle=Obstacle.PASSING
                ) from error
            raise self.of_refusal(error) from error
        except network.NetworkFailure as error:
            ended = link.ended
            link.close(reason="not opened")
            raise NotOpened(
                str(error),
                obstacle=Obstacle.PASSING,
                retry_after_s=ended.retry_after_s if ended else None,
            ) from error
        except (strict_json.Malformed, failures.Fault) as error:
            link.close(reason="not understood")
            raise NotOpened(
                f"The Platform's welcome is not understood: {error}", obstacle=Obstacle.STANDING
            ) from error
        except failures.Temporary as error:
            link.close(reason="not stored")
            raise NotOpened(str(error), obstacle=Obstacle.PASSING) from error
        except BaseException:
            link.close(reason="not opened")
            raise

    def of_refusal(self, error: links.Refused) -> NotOpened | failures.NeedsOperator:
        """What a refusal means: `NeedsOperator` where no further try will change it."""
        if error.code in _NEEDS_OPERATOR:
            return needs_operator(error, where=self._where)
        obstacle = Obstacle.PASSING if error.code in _PASSING else Obstacle.STANDING
        return NotOpened(f"The Platform refused the session: {error}", obstacle=obstacle)


def not_opened(error: network.NetworkFailure) -> NotOpened:
    """What a connection that did not come about means for the next try."""
    if isinstance(error, pinned_handshake.PinMismatch):
        return NotOpened(str(error), obstacle=Obstacle.OTHER_KEY)
    passing = error.kind is network.Kind.TRANSIENT
    return NotOpened(str(error), obstacle=Obstacle.PASSING if passing else Obstacle.STANDING)


def needs_operator(error: links.Refused, *, where: paths.Paths) -> failures.NeedsOperator:
    """The failure for a refusal that no further try will change."""
    said = error.detail.rstrip(".") or error.code
    if error.code == session.Refusal.GENERATION_CONFLICT:
        return failures.NeedsOperator(
            f"Another machine runs with this machine's identity: {said} ({error.code}).",
            hint="If this machine is the copy, let it be a node of its own: take a token for "
            "another node id on the Platform (enlist nodes enroll-token ID), move the copied "
            f"identity away, and join: mv {where.folder} {where.folder}.copied; "
            f"enlist worker join - --data-dir {where.folder}",
        )
    if error.code == session.Refusal.NODE_REMOVED:
        return NodeRemoved(
            f"The Platform has removed this node: {said} ({error.code}).",
            hint="To make this machine a node again, allow it on the Platform (enlist nodes allow "
            "ID; enlist nodes enroll-token ID) and join with the new token: enlist worker join -",
        )
    return failures.NeedsOperator(
        f"This machine is newer than its Platform: {said} ({error.code}).",
        hint="Update the Platform, or install the Platform's version here, then start the Agent "
        f"again: {starting.command(where)}",
    )


def read(where: paths.Paths) -> tuple[join_file.JoinFile, agent_file.AgentFile]:
    """The two files that a session stands on; raises `NeedsOperator`."""
    try:
        join, agent = join_file.read(where.join), agent_file.read(where.agent)
    except documents.Damaged as error:
        raise failures.NeedsOperator(
            str(error), hint="Repair it by joining again with a new token: enlist worker join -"
        ) from error
    if join is None or agent is None:
        raise NotJoined(
            f"This machine has not joined a Platform (data directory {where.folder}).",
            hint=f"Run: enlist worker join - --data-dir {where.folder}",
        )
    return join, agent
