"""A stable address comes to a machine of Hetzner Cloud, which must be off for that.

Off (softly, then hard), its own IPv4 away, the stable one there, on again: each step is chosen by
what the provider shows now and given back as a fault to try later, so nobody waits in here and
whatever was cut off is taken up again. A machine that was off already is on afterwards too.

Known limit: what the machine had before is deleted at the end; if this process ends in between it
stays, unused and billed, until it goes with its machine.
"""

import datetime
from collections.abc import Mapping, MutableMapping
from typing import Any, Final

from provisioning import contract, outcomes
from provisioning.hetzner import api as api_kit
from provisioning.hetzner import calls, children, shapes
from runtime_kit import clock as clock_kit

SOFT: Final = datetime.timedelta(seconds=60)
"""How long a machine may take to end by itself before it is turned off."""
PACE: Final = datetime.timedelta(seconds=10)


class Swaps:
    """Those of one connection; `memory` outlives the driver."""

    def __init__(
        self, api: api_kit.Api, *, clock: clock_kit.Clock, memory: MutableMapping[str, Any]
    ) -> None:
        self._api = api
        self._clock = clock
        self._asked: dict[str, datetime.datetime] = memory.setdefault("hetzner shutdowns", {})
        self._former: dict[str, str] = memory.setdefault("hetzner former addresses", {})

    async def attach(self, child: contract.Child, *, to: str) -> None:
        """One step towards the machine running with it; returns once it has it.

        Asked again then, it lets the machine run again, and returns once that is so.
        Raises `outcomes.Fault` with topic `STATE` while there are steps left.
        """
        children.require(to, what="machine")
        now = await children.describe(self._api, child)
        told = await self._api.get_or_none(calls.GET_SERVER, f"/servers/{to}")
        if now is None or told is None:
            what = f"address {child.ref}" if now is None else f"server {to}"
            raise outcomes.Fault(
                f"The {what} is not there any more.",
                outcome=outcomes.Outcome.NOT_DONE_PERMANENT,
                topic=outcomes.Topic.CATALOGUE,
            )
        status, held = shapes.shaped(calls.GET_SERVER, lambda: _read(told))
        if now.attached_to == to:
            await self._end(to, status=status)
        elif status != "off":
            await self._stop(to)
        elif held is not None:
            self._former[to] = held
            await self._api.send(calls.UNASSIGN_ADDRESS, f"/primary_ips/{held}/actions/unassign")
            raise _later("gives its own address up")
        else:
            await self._api.send(
                calls.ASSIGN_ADDRESS,
                f"/primary_ips/{child.ref}/actions/assign",
                body={"assignee_id": int(to), "assignee_type": "server"},
            )

    async def _stop(self, server: str) -> None:
        now = self._clock.now()
        asked = self._asked.setdefault(server, now)
        if asked == now:
            await self._api.send(calls.SHUT_DOWN, f"/servers/{server}/actions/shutdown")
        elif now - asked >= SOFT:
            await self._api.send(calls.POWER_OFF, f"/servers/{server}/actions/poweroff")
        raise _later("is turned off")

    async def _end(self, server: str, *, status: str) -> None:
        if status == "off":
            await self._api.send(calls.POWER_ON, f"/servers/{server}/actions/poweron")
            raise _later("is turned on again")
        self._asked.pop(server, None)
        former = self._former.get(server)
        if former is not None:
            address = contract.Child(kind=contract.ChildKind.ADDRESS, ref=former)
            await children.delete(self._api, address)
            del self._former[server]


def _read(told: Mapping[str, Any]) -> tuple[str, str | None]:
    server = told["server"]
    held = (server.get("public_net") or {}).get("ipv4")
    return str(server["status"]), None if not held else str(held["id"])


def _later(what: str) -> outcomes.Fault:
    return outcomes.Fault(
        f"Hetzner Cloud gives an address only to a machine that is off: the machine {what}.",
        outcome=outcomes.Outcome.NOT_DONE_RETRYABLE,
        topic=outcomes.Topic.STATE,
        retry_after=PACE,
    )
