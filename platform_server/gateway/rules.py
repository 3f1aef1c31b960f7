"""What the settings say to the gateway, and its own limits with their reasons."""

import dataclasses
from typing import Final

from runtime_kit.mux import connection

GRACE_SECONDS: Final = 25.0  # for a heartbeat that is under way, as on the machine's side
PING_SECONDS: Final = 5.0  # how long a running session may take to show that it runs
HEALTH_SECONDS: Final = 10.0
HELLO_SECONDS: Final = 10.0  # from the handshake to hello
CONFIRM_SECONDS: Final = 30.0  # from welcome to its confirmation: a disk may be slow
ERRAND_SECONDS: Final = 120.0
MOST_UNOPENED: Final = 8  # of one key, before they are sessions: a command, an Agent, their rests

BEFORE_OPEN: Final = connection.Limits(
    streams=2,
    asks=2,
    question_bytes=16_384,  # a renewal with its PEM, the largest question of an errand
    buffered_bytes=32_768,
    owed_bytes=16_384,
    question_s=10.0,
)
ONCE_OPEN: Final = connection.Limits(streams=16, buffered_bytes=262_144)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """One engine's."""

    engine_id: str
    environment: str
    heartbeat_seconds: int = 30
    certificate_days: int = 90
    sessions: int = 20_000
    handshakes: int = 64
    handshakes_per_address: int = 16

    @property
    def silent_seconds(self) -> float:
        """After how long without a byte a session is dead: 55 s with a heartbeat every 30."""
        return self.heartbeat_seconds + GRACE_SECONDS
