"""What an errand of a command needs from outside: a machine's own renewal, its leave, its checkup.

Such a command keeps nothing and answers nothing, so its trust set is the one on the disk, and what
only a session would be asked is never called. Beside a running Agent it shows by the hash in
`session.json` that it is of that machine.
"""

import os
import random
import secrets
from collections.abc import Mapping

from runtime_kit import clock as clock_kit
from wire_protocol import heartbeats, trust
from worker_agent.door import gateway
from worker_agent.identity import lock
from worker_agent.session import outside, told
from worker_agent.settings import paths


class _Held:
    """The trust set on the disk; an errand asks for no other and brings no news."""

    def __init__(self, held: trust.Held) -> None:
        self._held = held

    @property
    def held(self) -> trust.Held:
        return self._held

    async def take(self, answer: bytes, *, source: str) -> None:
        raise NotImplementedError

    async def ask(self) -> None:
        raise NotImplementedError


def around(
    where: paths.Paths,
    *,
    held: trust.Held,
    clock: clock_kit.Clock,
    environment: Mapping[str, str] = os.environ,
) -> outside.Outside:
    """The surroundings of one errand of this machine."""
    return outside.Outside(
        clock=clock,
        chance=random.SystemRandom(),
        instance=_instance(where),
        connect=gateway.Gateway(clock=clock, environment=environment).connect,
        trust=_Held(held),
        work=outside.NoWork(),
        teller=outside.Untold(),
        health=_no_health,
        heartbeat=_no_heartbeat,
    )


def _instance(where: paths.Paths) -> str:
    """What shows this machine's own running Agent; anything else where none runs."""
    said = told.read(where.session) if lock.is_held(where.agent_lock) else None
    return (said.instance_sha256 if said is not None else None) or secrets.token_hex(16)


def _no_health() -> bytes:
    raise NotImplementedError


def _no_heartbeat() -> heartbeats.Heartbeat:
    raise NotImplementedError
