"""How an enrollment ends without a node, and what the caller is told.

To a stranger every refusal is the same: 403, one body, whatever was wrong. The reason goes to the
audit alone. Two endings differ: `Limited` for a caller who has proved nothing and asks too often,
and `WorkerNewer`, which only the holder of a good token ever sees.
"""

import dataclasses
from typing import Final

from platform_server.tokens import reasons

CODE: Final = "enrollment-refused"
DETAIL: Final = (
    "The Platform refused this enrollment. Its operator finds the reason with "
    "`enlist nodes audit`; ask for a new join token."
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Refused for this reason; nothing was spent."""

    reason: reasons.Reason


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Limited:
    """Too many failures of callers who proved nothing; ask again after so many seconds."""

    retry_after_seconds: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WorkerNewer:
    """The machine is newer than the Platform; its token is good and unspent."""

    machine_version: str
    platform_version: str
