"""A short connection to the gateway for one question, such as renew; it never takes the session.

For commands, and for nodes that listen. A renewal is complete here: the new certificate is made
known over one connection, shown in a second one, and put in the old one's place once it was
welcomed.
"""

import contextlib
from collections.abc import Awaitable, Callable
from typing import TypeVar

from runtime_kit import failures as network
from runtime_kit.mux import link as links
from wire_protocol import session
from worker_agent.identity import own, replacing
from worker_agent.session import connecting, outside, renewal
from worker_agent.settings import failures, paths

LEAVE_SECONDS = 20.0
ASK_SECONDS = 20.0
_Result = TypeVar("_Result")


async def renew(
    where: paths.Paths, *, around: outside.Outside, new_key: bool | None = None
) -> own.Identity:
    """Renews the certificate, or changes the key, and returns what is in use now.

    Raises `Temporary` where the Platform is not there or the present certificate stays in use for
    another passing reason, and `NeedsOperator` where a person must act.
    """

    async def ask(opened: connecting.Opened) -> own.Identity:
        return await renewal.renew(opened, where=where, clock=around.clock, new_key=new_key)

    made = await _over(where, around=around, then=ask)
    await _take_into_use(where, around=around)
    return made


async def renew_if_due(where: paths.Paths, *, around: outside.Outside) -> own.Identity | None:
    """The same where it is time by the Platform's clock, or a renewal was not finished."""

    async def ask(opened: connecting.Opened) -> own.Identity | None:
        if not renewal.is_due(opened, where=where, clock=around.clock):
            return None
        return await renewal.renew(opened, where=where, clock=around.clock)

    made = await _over(where, around=around, then=ask)
    if made is not None:
        await _take_into_use(where, around=around)
    return made


async def ask(where: paths.Paths, method: str, body: bytes, *, around: outside.Outside) -> bytes:
    """Asks one question that an errand may ask; raises as `renew` does."""

    async def question(opened: connecting.Opened) -> bytes:
        return await opened.link.ask(method, body, timeout_s=ASK_SECONDS)

    return await _over(where, around=around, then=question)


async def leave(where: paths.Paths, *, around: outside.Outside) -> None:
    """Has the Platform remove this node, or finds that it has; raises as `renew` does."""

    async def ask(opened: connecting.Opened) -> None:
        await opened.link.ask(session.Ask.LEAVE, b"", timeout_s=LEAVE_SECONDS)

    with contextlib.suppress(connecting.NodeRemoved):
        await _over(where, around=around, then=ask)


async def greet(where: paths.Paths, *, around: outside.Outside) -> None:
    """Makes sure that the Platform lets this machine in; raises as `renew` does."""

    async def nothing(_opened: connecting.Opened) -> None:
        """The welcome is all."""

    await _over(where, around=around, then=nothing)


async def _take_into_use(where: paths.Paths, *, around: outside.Outside) -> None:
    """Shows the certificate that was just made known, and puts it in place once it is welcomed.

    Where a former one had to be shown, that is the present one, which stays where it is.
    """

    async def welcomed(_opened: connecting.Opened) -> None:
        await renewal.put_in_place(where, clock=around.clock)

    by = "present" if replacing.find_next(where) is None else "next"
    await _over(where, around=around, then=welcomed, by=by)


async def _over(
    where: paths.Paths,
    *,
    around: outside.Outside,
    then: Callable[[connecting.Opened], Awaitable[_Result]],
    by: str | None = None,
) -> _Result:
    """Opens an errand's connection, asks, and closes it in every case."""
    trying = connecting.Connecting(where, around=around, answer=_refuse)
    try:
        opened = await trying.open_errand(by=by)
    except connecting.NotOpened as fault:
        raise _failure_of(fault) from fault
    try:
        return await then(opened)
    except links.Refused as error:
        refusal = trying.of_refusal(error)
        if isinstance(refusal, connecting.NotOpened):
            kind = (
                failures.Temporary
                if refusal.obstacle is connecting.Obstacle.PASSING
                else failures.Refused
            )
            raise kind(f"The Platform refused: {error.detail.rstrip('.')}.") from error
        raise refusal from error
    except network.NetworkFailure as error:
        raise failures.Temporary(
            f"{str(error).rstrip('.')}. Run the same command again: nothing is done twice."
        ) from error
    finally:
        opened.link.close(reason="done")


def _failure_of(fault: connecting.NotOpened) -> failures.Failure:
    reason = f"{fault.reason.rstrip('.')}."
    if fault.obstacle is connecting.Obstacle.PASSING:
        return failures.Temporary(reason)
    if fault.obstacle is connecting.Obstacle.OTHER_KEY:
        return failures.NeedsOperator(
            reason,
            hint="If the Platform has a new key, its trust set says so: enlist worker "
            "refresh-trust",
        )
    return failures.NeedsOperator(reason, hint="See what is wrong: enlist doctor")


async def _refuse(_link: links.Link, _method: str, _body: bytes) -> bytes:
    raise links.Refusal(session.Refusal.UNKNOWN, "This is an errand, which answers nothing.")
