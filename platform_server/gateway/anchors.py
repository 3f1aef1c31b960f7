"""Whose certificates open the gateway, in memory: one look-up an opening, however many nodes.

An Agent asks for a server name that begins with the first 32 hex digits of its pin, so that its
certificates are found without trying any other node's. Read whole at the start, page by page, and
kept up to date by the events; what this engine has just committed is handed in at once (`put`).
Tombstones stay in it, so that a removed node can be told that it is removed. The map lets nobody
do anything: after the handshake the node's row decides.

Known limit: an engine hears of a certificate that another engine has taken within about a second.
"""

import dataclasses
import re
import ssl
from collections.abc import Iterable, Sequence
from typing import Final

from platform_server.gateway import generation
from platform_server.nodes import renewal
from platform_server.store import contract
from wire_protocol import ids, pins

_PAGE: Final = 1000
_EVENTS: Final = 500
_TOUCHED: Final = 200
_PREFIX: Final = re.compile(r"[0-9a-f]{32}")
_COLUMNS: Final = (
    "node_id, state, pin, certificate_pem, next_pin, next_certificate_pem, former_pin, "
    "former_certificate_pem"
)
_CHANGES: Final = frozenset(
    {
        "node.enrolled",
        "node.key-changed",
        "node.certificate-changed",
        "node.removed",
        "node.allowed",
        renewal.BEGUN,
        renewal.RENEWED,
        renewal.REKEYED,
    }
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    """One certificate of one node."""

    node_id: ids.NodeId
    pin: pins.Pin
    der: bytes = dataclasses.field(repr=False)
    proof: generation.Proof
    removed: bool = False


class Anchors:
    """The certificates by the prefix of their pin and by node."""

    def __init__(self, store: contract.Store) -> None:
        self._store = store
        self._by_prefix: dict[str, tuple[Anchor, ...]] = {}
        self._by_node: dict[ids.NodeId, tuple[Anchor, ...]] = {}
        self._seen = 0
        self._touched: dict[ids.NodeId, None] = {}  # since `follow` has given any out

    def __len__(self) -> int:
        return len(self._by_node)

    async def load(self) -> None:
        """Reads every node; raises `StoreError`."""
        last = await self._store.read(
            lambda tx: tx.fetch_one("SELECT seq FROM events ORDER BY seq DESC LIMIT 1")
        )
        after = ""
        while True:
            page = await self._store.read(lambda tx: _page(tx, after=after))  # noqa: B023
            for row in page:
                self._set(ids.NodeId(row["node_id"]), _of_row(row))
            if len(page) < _PAGE:
                break
            after = page[-1]["node_id"]
        # from before the pages: what happened meanwhile is read twice rather than missed
        self._seen = 0 if last is None else int(last["seq"])

    async def follow(self) -> Sequence[ids.NodeId]:
        """Takes over what has changed since, and gives whose; raises `StoreError`.

        Whose is given once it came to its end: what was read before a fault is given the next time.
        """
        while True:
            rows = await self._store.read(
                lambda tx: tx.fetch_all(
                    "SELECT seq, kind, subject FROM events WHERE seq > ? ORDER BY seq LIMIT ?",
                    self._seen,
                    _EVENTS,
                )
            )
            fresh = [ids.NodeId(row["subject"]) for row in rows if row["kind"] in _CHANGES]
            self._touched |= dict.fromkeys(fresh)
            for start in range(0, len(fresh), _TOUCHED):
                await self.refresh(fresh[start : start + _TOUCHED])
            if rows:
                self._seen = int(rows[-1]["seq"])
            if len(rows) < _EVENTS:
                touched, self._touched = list(self._touched), {}
                return touched

    async def refresh(self, node_ids: Sequence[ids.NodeId]) -> None:
        """Reads these nodes (at most a batch) again; raises `StoreError`."""
        wanted = list(dict.fromkeys(node_ids))
        rows = await self._store.read(lambda tx: _some(tx, node_ids=wanted))
        found = {ids.NodeId(row["node_id"]): _of_row(row) for row in rows}
        for node_id in wanted:
            self._set(node_id, found.get(node_id, ()))

    def put(self, node_id: ids.NodeId, *, pin: pins.Pin, certificate_pem: str) -> None:
        """A node that has just enrolled here with this certificate; its former ones end."""
        self._set(
            node_id,
            (
                Anchor(
                    node_id=node_id,
                    pin=pin,
                    der=ssl.PEM_cert_to_DER_cert(certificate_pem),
                    proof=generation.Proof.PRESENT,
                ),
            ),
        )

    def of_server_name(self, name: str) -> Sequence[Anchor]:
        """The certificates that a client asking for this name may prove; none for a stranger."""
        prefix = name.partition(".")[0].lower()
        return self._by_prefix.get(prefix, ()) if _PREFIX.fullmatch(prefix) else ()

    def of_leaf(self, der: bytes, *, pin: pins.Pin) -> Sequence[Anchor]:
        """The nodes to which this very certificate belongs: usually one."""
        return [one for one in self._by_prefix.get(_prefix_of(pin), ()) if one.der == der]

    def of_node(self, node_id: ids.NodeId) -> Sequence[Anchor]:
        """The certificates of a node."""
        return self._by_node.get(node_id, ())

    def _set(self, node_id: ids.NodeId, anchors: tuple[Anchor, ...]) -> None:
        for prefix in {_prefix_of(one.pin) for one in self._by_node.pop(node_id, ())}:
            kept = tuple(one for one in self._by_prefix[prefix] if one.node_id != node_id)
            if kept:
                self._by_prefix[prefix] = kept
            else:
                del self._by_prefix[prefix]
        for one in anchors:
            prefix = _prefix_of(one.pin)
            self._by_prefix[prefix] = (*self._by_prefix.get(prefix, ()), one)
        if anchors:
            self._by_node[node_id] = anchors


def _prefix_of(pin: pins.Pin) -> str:
    return pin.removeprefix("sha256:")[:32]


async def _page(tx: contract.Tx, *, after: str) -> Sequence[contract.Row]:
    return await tx.fetch_all(
        f"SELECT {_COLUMNS} FROM nodes WHERE node_id > ? ORDER BY node_id LIMIT ?",  # noqa: S608
        after,
        _PAGE,
    )


async def _some(tx: contract.Tx, *, node_ids: Iterable[ids.NodeId]) -> Sequence[contract.Row]:
    wanted = list(node_ids)
    marks = ", ".join("?" for _ in wanted)
    return await tx.fetch_all(
        f"SELECT {_COLUMNS} FROM nodes WHERE node_id IN ({marks})",  # noqa: S608 - marks alone
        *wanted,
    )


def _of_row(row: contract.Row) -> tuple[Anchor, ...]:
    node_id = ids.NodeId(row["node_id"])
    found = []
    for proof, pin, pem in (
        (generation.Proof.PRESENT, row["pin"], row["certificate_pem"]),
        (generation.Proof.NEXT, row["next_pin"], row["next_certificate_pem"]),
        (generation.Proof.FORMER, row["former_pin"], row["former_certificate_pem"]),
    ):
        if pin is not None and pem is not None:
            found.append(
                Anchor(
                    node_id=node_id,
                    pin=pins.Pin(pin),
                    der=ssl.PEM_cert_to_DER_cert(pem),
                    proof=proof,
                    removed=row["state"] == "removed",
                )
            )
    return tuple(found)
