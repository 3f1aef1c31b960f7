"""What is known here of a connection, and what of its inventory belongs to none of it: pure.

Read after the provider has answered, never before: an order is committed before its provider hears
of it, so whatever was there when the provider answered is known by now. A machine whose order is
still open is never an orphan, whatever its id says, since that order is looking for it.
"""

import dataclasses
from collections.abc import Sequence
from typing import Final

from platform_server.cloud import orphans
from platform_server.store import contract
from provisioning import contract as provider

_MOST: Final = 20_000
_DISKS: Final = frozenset({provider.ChildKind.DISK.value, provider.ChildKind.VOLUME.value})
"""Two words for one thing: which of them a provider uses may go by a flag of the attachment."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """Ids of what is ours: machines, what hangs on them or is kept, and orders that are open."""

    machine_refs: frozenset[str]
    child_keys: frozenset[orphans.Key]
    open_operations: frozenset[str]

    def has_child(self, *, kind: str, ref: str) -> bool:
        """Whether it is known, whichever word for a disk stands in its row."""
        words = _DISKS if kind in _DISKS else {kind}
        return any((one, ref) in self.child_keys for one in words)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Stray:
    """Something there that belongs to nothing known."""

    kind: str
    ref: str
    name: str
    region: str
    owner: provider.Owner
    size: str = ""
    child: provider.Child | None = None
    instance: provider.Instance | None = None

    @property
    def key(self) -> orphans.Key:
        """What names it at its connection."""
        return self.kind, self.ref


async def read(tx: contract.Tx, *, connection_id: str) -> Known:
    """What is known of this connection now.

    What hung on a machine that a person has forgotten is forgotten with it, so it can be found.
    """
    machines = await tx.fetch_all(
        "SELECT provider_ref FROM cloud_machines WHERE connection_id = ? "
        "AND provider_ref IS NOT NULL AND gone_at IS NULL AND forgotten_at IS NULL LIMIT ?",
        connection_id,
        _MOST,
    )
    children = await tx.fetch_all(
        "SELECT c.kind, c.provider_ref FROM cloud_children c LEFT JOIN cloud_machines m "
        "ON m.machine_id = c.machine_id WHERE c.connection_id = ? "
        "AND c.provider_ref IS NOT NULL AND c.gone_at IS NULL "
        "AND ((c.keep = 0 AND m.forgotten_at IS NULL) "
        "OR (c.keep = 1 AND c.sent_at IS NOT NULL)) LIMIT ?",  # kept, not ordered: it hangs alone
        connection_id,
        _MOST,
    )
    doubted = await tx.fetch_all(
        "SELECT a.operation_id FROM cloud_attempts a JOIN cloud_machines m "
        "ON m.machine_id = a.machine_id WHERE m.connection_id = ? "
        "AND a.state IN ('written', 'sent') AND m.forgotten_at IS NULL LIMIT ?",
        connection_id,
        _MOST,
    )
    unsettled = await tx.fetch_all(
        "SELECT operation_id FROM cloud_children WHERE connection_id = ? "
        "AND provider_ref IS NULL AND gone_at IS NULL LIMIT ?",
        connection_id,
        _MOST,
    )
    ongoing = await tx.fetch_all(
        "SELECT operation_id FROM operations WHERE ended_at IS NULL LIMIT ?", _MOST
    )
    return Known(
        machine_refs=frozenset(str(row["provider_ref"]) for row in machines),
        child_keys=frozenset((str(row["kind"]), str(row["provider_ref"])) for row in children),
        open_operations=frozenset(
            str(row["operation_id"]) for row in (*doubted, *unsettled, *ongoing)
        ),
    )


def list_strays(
    inventory: provider.Inventory, *, known: Known, installation: str
) -> Sequence[Stray]:
    """What carries this installation's id and belongs to nothing known, each once.

    What another installation made in the same account is none of our business, whatever its name.
    """
    found: dict[orphans.Key, Stray] = {}
    machines = {one.ref for one in inventory.machines}
    for one in inventory.machines:
        owner = _ours(one.owner, known=known, installation=installation)
        if owner is not None and one.ref not in known.machine_refs:
            stray = Stray(
                kind=orphans.MACHINE,
                ref=one.ref,
                name=one.name,
                region=one.region,
                owner=owner,
                size=one.size,
                instance=one,
            )
            found[stray.key] = stray
    for child in inventory.children:
        owner = _ours(child.owner, known=known, installation=installation)
        is_held = child.attached_to in known.machine_refs or child.attached_to in machines
        if owner is None or known.has_child(kind=child.kind.value, ref=child.ref):
            continue
        if is_held and not child.keep:
            continue  # it goes with its machine
        stray = Stray(
            kind=child.kind.value,
            ref=child.ref,
            name=child.name,
            region=child.region,
            owner=owner,
            child=child,
        )
        found[stray.key] = stray
    return list(found.values())


def _ours(
    owner: provider.Owner | None, *, known: Known, installation: str
) -> provider.Owner | None:
    if owner is None or owner.installation != installation:
        return None
    return None if owner.operation in known.open_operations else owner
