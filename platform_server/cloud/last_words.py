"""What a machine that never joined showed on its console, for the reason of the failed order.

A first boot that cannot reach the Platform tells it to the console alone; where the provider lets
that be read, the operation carries its end. Only ever an addition: whatever goes wrong here leaves
the reason as it was.
"""

from typing import Final

from platform_server.cloud import machines, means
from platform_server.operations import holding, kinds
from provisioning import contract as provider
from provisioning import outcomes

MARK: Final = "enlist-first-boot:"
MOST: Final = 600
_OURS: Final = 4
_LAST: Final = 3


async def of_console(
    held: holding.Held, *, machine: machines.Machine, means_of: means.Means
) -> str:
    """The end of the console in words; empty where there is none, or it cannot be read now."""
    if machine.provider_ref is None:
        return ""
    try:
        async with means_of.clouds.driver(
            machine.connection_id,
            purpose="read console",
            actor=held.operation.created_by,
            operation_id=held.operation.operation_id,
            changes=False,
        ) as driver:
            if provider.Capability.CONSOLE not in driver.capabilities:
                return ""
            shown = await driver.console(machine.provider_ref, region=machine.region)
    except (outcomes.Fault, kinds.TryLater, kinds.Stop):
        return ""
    return told(shown or "")


def told(shown: str) -> str:
    """Our own first boot's last lines, or the last ones of all; printable, on one line."""
    lines = [line.strip() for line in shown.splitlines() if line.strip()]
    ours = [line[line.index(MARK) + len(MARK) :].strip() for line in lines if MARK in line]
    kept = " | ".join(ours[-_OURS:] or lines[-_LAST:])
    plain = "".join(sign if " " <= sign <= "~" else " " for sign in kept)
    return f" The console showed last: {plain[-MOST:].strip()}" if plain.strip() else ""
