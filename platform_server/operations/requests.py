"""What an operator asks for becomes operations: which nodes, to which release, one after the other.

Judged and stored in one transaction, so that a rehearsal says what would happen. A node that is
named and cannot be updated is a refusal; of all nodes, those that cannot be are passed over and
told, with the reason. No node gets a release newer than its Platform: it would not be let in.
"""

import dataclasses
import datetime
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from platform_server.nodes import configured, heartbeats, registry
from platform_server.nodes import records as node_records
from platform_server.nodes import states as node_states
from platform_server.operations import (
    batch,
    holding,
    node_release,
    plan,
    records,
    shelf,
    states,
)
from platform_server.store import contract
from wire_protocol import ids, product, updates, versions


class CannotUpdate(Exception):
    """The node cannot be updated as things stand; the message says what to do."""


class Busy(Exception):
    """Another operation on the node is open; see `enlist operations list`."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What is asked for. No node ids: all that can be."""

    node_ids: Sequence[ids.NodeId]
    version: str | None
    infra: str | None
    created_by: str
    now: datetime.datetime


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Passed:
    """A node that gets no update, and why."""

    node_id: ids.NodeId
    reason: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """What was stored. `whole` is None where there is nothing to do."""

    whole: records.Operation | None
    parts: Sequence[records.Operation]
    passed: Sequence[Passed]


async def update(
    tx: contract.Tx,
    *,
    wish: Wish,
    archives: Sequence[shelf.Archive],
    operators: configured.ConfiguredNodes,
    environment: str,
) -> Made:
    """Stores one whole with a part for each node, each waiting for the one before.

    Raises `registry.NoSuchNode`, `registry.OperatorsNode`, `node_states.WrongState`, `Busy` and
    `CannotUpdate`.
    """
    offered = _offered(archives, wish=wish)
    wanted, passed = await _choose(tx, wish=wish, archives=offered, operators=operators)
    if not wanted:
        return Made(whole=None, parts=(), passed=passed)
    infras = {node.infra for node, _ in wanted}
    whole = _operation(
        kind=batch.UPDATE_NODES,
        infra=infras.pop() if len(infras) == 1 else "default",
        subject=None,
        request={"version": wish.version},
        wish=wish,
    )
    parts: list[records.Operation] = []
    for position, (node, target) in enumerate(wanted, start=1):
        parts.append(
            dataclasses.replace(
                _operation(
                    kind=node_release.UPDATE,
                    infra=node.infra,
                    subject=node.node_id,
                    request=_request(target),
                    wish=wish,
                ),
                parent_id=whole.operation_id,
                created_at=wish.now + datetime.timedelta(microseconds=position),
                next_at=wish.now if not parts else None,  # the former's end wakes it
                depends_on=(parts[-1].operation_id,) if parts else (),
            )
        )
    for operation in (whole, *parts):
        await records.insert(tx, operation=operation)
    for operation in (whole, *parts):
        await holding.tell(tx, operation=operation, environment=environment, now=wish.now)
    return Made(whole=whole, parts=parts, passed=passed)


async def roll_back(
    tx: contract.Tx,
    *,
    node_id: ids.NodeId,
    operators: configured.ConfiguredNodes,
    environment: str,
    created_by: str,
    now: datetime.datetime,
) -> records.Operation:
    """Stores the operation; raises as `update` does."""
    wish = Wish(node_ids=[node_id], version=None, infra=None, created_by=created_by, now=now)
    await _lock(tx, node_ids=[node_id])
    node = await _get(tx, node_id=node_id, operators=operators)
    await _require_free(tx, node=node)
    _require_ready(node)
    runs = await node_release.find_runs(tx, node_id=node_id)
    operation = _operation(
        kind=node_release.ROLL_BACK,
        infra=node.infra,
        subject=node_id,
        request={} if runs is None else {"from": str(runs)},
        wish=wish,
    )
    await records.insert(tx, operation=operation)
    await holding.tell(tx, operation=operation, environment=environment, now=now)
    return operation


async def _choose(
    tx: contract.Tx,
    *,
    wish: Wish,
    archives: Sequence[shelf.Archive],
    operators: configured.ConfiguredNodes,
) -> tuple[list[tuple[node_records.Node, updates.Update]], list[Passed]]:
    wanted: list[tuple[node_records.Node, updates.Update]] = []
    passed: list[Passed] = []
    named = sorted(set(wish.node_ids))
    nodes: Sequence[node_records.Node]
    if named:
        await _lock(tx, node_ids=named)
        nodes = [await _get(tx, node_id=one, operators=operators) for one in named]
    else:
        nodes = [
            node
            for node in await registry.list_page(tx, limit=batch.MOST_PARTS, infra=wish.infra)
            if node.state is not node_states.State.REMOVED and not operators.holds(node.node_id)
        ]
        await _lock(tx, node_ids=[node.node_id for node in nodes])
    heard = await heartbeats.find_last(tx, node_ids=[node.node_id for node in nodes])
    for node in nodes:
        last = heard.get(node.node_id)
        try:
            await _require_free(tx, node=node)
            _require_ready(node)
            target = _target(
                node.node_id, content=last.content if last else {}, archives=archives, wish=wish
            )
        except (Busy, CannotUpdate, node_states.WrongState) as fault:
            if named:
                raise
            passed.append(Passed(node_id=node.node_id, reason=str(fault)))
            continue
        runs = await node_release.find_runs(tx, node_id=node.node_id)
        if runs is not None and plan.is_release(runs, target):
            passed.append(Passed(node_id=node.node_id, reason=f"It runs {runs} already."))
        else:
            wanted.append((node, target))
    return wanted, passed


def _target(
    node_id: ids.NodeId,
    *,
    content: Mapping[str, Any],
    archives: Sequence[shelf.Archive],
    wish: Wish,
) -> updates.Update:
    if not content:
        raise CannotUpdate(
            f"The node {node_id} has sent no heartbeat yet, and so not told what it runs. Its "
            "first one comes within half a minute: run the command again then."
        )
    architecture = str(content.get("architecture", ""))
    if not architecture:
        raise CannotUpdate(
            f"The node {node_id} has not told its architecture. Update Enlist on the machine "
            "by hand, as root: run the installer again."
        )
    found = shelf.newest(archives, architecture=architecture, version=wish.version)
    if found is None:
        what = "worker archive" if wish.version is None else f"worker archive of {wish.version}"
        raise CannotUpdate(
            f"This Platform has no {what} for {architecture}, which {node_id} needs. Add one: "
            "enlist platform bundles add FILE"
        )
    present = str(content.get("version", ""))
    try:
        is_older = versions.is_newer(present, found.version)
    except ValueError:
        is_older = False
    if is_older:
        raise CannotUpdate(
            f"The node {node_id} runs {present}, which is newer than {found.version}. To have it "
            f"run the release before: enlist nodes roll-back {node_id}"
        )
    return found.to_update()


async def _lock(tx: contract.Tx, *, node_ids: Sequence[ids.NodeId]) -> None:
    """Of two that ask for the same node at one moment, the second sees the first."""
    for node_id in sorted(set(node_ids)):
        await tx.lock(f"operations:{node_id}")


async def _get(
    tx: contract.Tx, *, node_id: ids.NodeId, operators: configured.ConfiguredNodes
) -> node_records.Node:
    registry.require_ours(node_id, operators=operators)
    node = await registry.get(tx, node_id=node_id)
    if node.state is node_states.State.REMOVED:
        raise node_states.already_removed(node_id)
    return node


async def _require_free(tx: contract.Tx, *, node: node_records.Node) -> None:
    present = await records.find_open(tx, subject=node.node_id)
    if present is not None:
        raise Busy(
            f"The operation {present.operation_id} ({present.kind}) of {node.node_id} is open. "
            f"Follow it: enlist operations watch {present.operation_id}"
        )


def _require_ready(node: node_records.Node) -> None:
    if node.state is not node_states.State.READY:
        raise node_states.WrongState(
            f"The node {node.node_id} is {node.state}, and only a ready one can be updated. See: "
            f"enlist nodes show {node.node_id}"
        )


def _operation(
    *,
    kind: str,
    infra: str,
    subject: str | None,
    request: Mapping[str, Any],
    wish: Wish,
) -> records.Operation:
    return records.Operation(
        operation_id=secrets.token_hex(8),
        kind=kind,
        infra=infra,
        subject=subject,
        parent_id=None,
        state=states.State.REQUESTED,
        request=request,
        created_at=wish.now,
        created_by=wish.created_by,
        updated_at=wish.now,
        next_at=wish.now,
    )


def _request(target: updates.Update) -> Mapping[str, Any]:
    content = target.to_content()
    del content["urls"]
    return content


def _offered(archives: Sequence[shelf.Archive], *, wish: Wish) -> Sequence[shelf.Archive]:
    if wish.version is not None and versions.is_newer(wish.version, product.VERSION):
        raise CannotUpdate(
            f"This Platform runs {product.VERSION}, and no node may run a newer release. Update "
            "the Platform first."
        )
    found = [one for one in archives if not versions.is_newer(one.version, product.VERSION)]
    if not found:
        raise CannotUpdate(
            "This Platform has no worker archive to give. Add one: enlist platform bundles add FILE"
        )
    return found
