"""What a store that was just filled from a backup may no longer believe of its providers.

Connections come back with their credentials, and machines with their bills. An order that was
written down and not sent may have been sent after the backup: from now on it counts as sent, so
that a retry looks it up and nothing is ordered twice. Money without a person is off, since a
consent may have been taken back meanwhile; and what was made after the backup is known to nobody
here, so for that time the sweeper only lists (`find_blind_spot`).
"""

import dataclasses
import datetime
import json
from typing import Final

from platform_server.store import contract
from runtime_kit import clock as clock_kit
from wire_protocol import times

RESTORED: Final = "restored"
"""The name under which the last restore stands in `platform_values`."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BlindSpot:
    """From the backup to its restore: what was made then may be in use and is unknown here."""

    since: datetime.datetime
    until: datetime.datetime

    def holds(self, moment: datetime.datetime | None) -> bool:
        """Whether something made then is to be left alone; of unknown age as well."""
        return moment is None or self.since <= moment <= self.until


async def settle(tx: contract.Tx, *, now: datetime.datetime) -> None:
    """In the transaction of the restore."""
    moment = clock_kit.to_micros(now)
    await tx.execute(
        "UPDATE cloud_attempts SET state = 'sent', sent_at = ?, doubted_at = ?, "
        "clean_answers = 0 WHERE state IN ('written', 'sent')",
        moment,
        moment,
    )
    await tx.execute(
        "UPDATE cloud_children SET sent_at = ?, clean_answers = 0 WHERE keep = 1 "
        "AND provider_ref IS NULL AND gone_at IS NULL",
        moment,
    )
    await tx.execute("UPDATE cloud_connections SET consent = NULL WHERE consent IS NOT NULL")


async def find_blind_spot(tx: contract.Tx) -> BlindSpot | None:
    """That of the last restore, if this store was filled by one."""
    row = await tx.fetch_one("SELECT value FROM platform_values WHERE name = ?", RESTORED)
    if row is None:
        return None
    told = json.loads(row["value"])
    return BlindSpot(
        since=times.from_rfc3339(told["made_at"]) - datetime.timedelta(hours=1),
        until=times.from_rfc3339(told["at"]) + datetime.timedelta(hours=1),
    )
