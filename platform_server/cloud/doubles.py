"""A second machine of one order: recorded, deleted by an operation of its own, and confirmed gone.

It carries the order's ids, so it was made for it, by a call whose answer was lost. The rows are
written in the transaction that says which of them the order keeps: whatever is killed after that,
the operation asks the provider until the other is gone.
"""

from collections.abc import Sequence

from platform_server.cloud import machines, means, orphan_kind, orphans, requests
from platform_server.operations import holding
from platform_server.store import contract
from provisioning import contract as provider


async def take_away(
    tx: contract.Tx,
    *,
    m: means.Means,
    machine: machines.Machine,
    others: Sequence[provider.Instance],
) -> None:
    """Lists each as an orphan and stores the operation that deletes it."""
    now = m.clock.now()
    asked = requests.Asked(by=holding.ACTOR, now=now, environment=m.environment)
    for one in others:
        orphan = orphans.Orphan(
            connection_id=machine.connection_id,
            kind=orphans.MACHINE,
            provider_ref=one.ref,
            infra=machine.infra,
            name=one.name,
            region=one.region,
            operation_id=machine.operation_id,
            price=machine.price,
            made_at=one.created_at,
            first_seen_at=now,
            last_seen_at=now,
        )
        await orphans.put(tx, orphan=orphan)
        await orphan_kind.delete(tx, orphan=orphan, is_double=True, asked=asked)
