"""Signed statements as the store keeps them: numbered, never changed, the last ones at hand.

A new statement is written only when what it says has changed (keys, pins or addresses), so that
the serial tells a machine something. It is signed by every key that is valid at that moment: a
machine that holds any of them can follow. Those that changed keys are kept as stepping stones for
machines that were away.
"""

import base64
import dataclasses
import datetime
import json
import secrets
from collections.abc import Sequence
from typing import Final

from platform_server.store import contract
from platform_server.trust import keys
from runtime_kit import clock
from wire_protocol import ids, pins, statements

LOCK: Final = "trust"
CHAIN: Final = statements.MAX_CHAIN
EPOCH: Final = "epoch"
PLATFORM_ID: Final = "platform_id"
FIRST_EPOCH: Final = 1


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What a statement says beside the keys."""

    enrollment_pins: tuple[pins.Pin, ...] = ()
    gateway_pins: tuple[pins.Pin, ...] = ()
    enrollment_url: str | None = None
    gateway_urls: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """The present statement and the chain that leads to it, oldest first."""

    signed: statements.SignedStatement
    statement: statements.Statement
    chain: tuple[statements.SignedStatement, ...]

    @property
    def facts(self) -> Facts:
        """What the statement says beside the keys."""
        return Facts(
            enrollment_pins=self.statement.enrollment_pins,
            gateway_pins=self.statement.gateway_pins,
            enrollment_url=self.statement.enrollment_url,
            gateway_urls=self.statement.gateway_urls,
        )


async def find_number(tx: contract.Tx) -> tuple[int, int] | None:
    """Epoch and serial of the present statement: cheap, to see whether anything changed."""
    row = await tx.fetch_one(
        "SELECT epoch, serial FROM trust_statements ORDER BY epoch DESC, serial DESC LIMIT 1"
    )
    return None if row is None else (int(row["epoch"]), int(row["serial"]))


async def find_published(tx: contract.Tx) -> Published | None:
    """The present statement with its chain, or None before the first."""
    row = await tx.fetch_one(
        "SELECT statement, signatures FROM trust_statements "
        "ORDER BY epoch DESC, serial DESC LIMIT 1"
    )
    if row is None:
        return None
    stones = await tx.fetch_all(
        "SELECT statement, signatures FROM trust_statements WHERE changes_keys = 1 "
        "ORDER BY epoch DESC, serial DESC LIMIT ?",
        CHAIN,
    )
    signed = _signed_of_row(row)
    return Published(
        signed=signed,
        statement=statements.parse_statement(signed.content),
        chain=tuple(_signed_of_row(stone) for stone in reversed(stones)),
    )


async def publish(
    tx: contract.Tx,
    *,
    own_keys: Sequence[keys.OwnTrustKey],
    facts: Facts | None,
    now: datetime.datetime,
) -> Published:
    """Publishes a new statement if keys or facts differ from the present one; gives what stands.

    Without `facts` those of the present statement stay. The caller holds `LOCK`. Raises
    `ValueError` when no key is valid now: the caller makes one first.
    """
    present = await find_published(tx)
    if facts is None:
        facts = Facts() if present is None else present.facts
    in_order = sorted(
        own_keys, key=lambda key: (key.public.not_after, key.created_at, key.public.key_id)
    )
    public = tuple(key.public for key in in_order)
    epoch = await _epoch(tx)
    if (
        present is not None
        and present.statement.epoch == epoch
        and present.facts == facts
        and present.statement.trust_keys == public
    ):
        return present
    signers = [key for key in own_keys if key.public.is_valid_at(now)]
    if not signers:
        raise ValueError("No trust key is valid now, so nothing can be signed.")
    statement = statements.Statement(
        platform_id=await ensure_platform_id(tx),
        epoch=epoch,
        serial=_serial_after(present, epoch=epoch),
        issued_at=now,
        trust_keys=public,
        enrollment_pins=facts.enrollment_pins,
        gateway_pins=facts.gateway_pins,
        enrollment_url=facts.enrollment_url,
        gateway_urls=facts.gateway_urls,
    )
    content = statement.to_bytes()
    await _insert(
        tx,
        statement=statement,
        content=content,
        signatures=[key.signature_of(content) for key in signers],
        changes_keys=present is None or present.statement.trust_keys != public,
    )
    published = await find_published(tx)
    if published is None:
        raise AssertionError("A statement that was just written is not there.")
    return published


async def ensure_platform_id(tx: contract.Tx) -> ids.PlatformId:
    """This Platform's id: made once, with the store, and never changed."""
    await tx.execute(
        "INSERT INTO platform_values(name, value) VALUES (?, ?) ON CONFLICT (name) DO NOTHING",
        PLATFORM_ID,
        _new_platform_id(),
    )
    found = await find_platform_id(tx)
    if found is None:
        raise AssertionError("The platform id that was just written is not there.")
    return found


async def find_platform_id(tx: contract.Tx) -> ids.PlatformId | None:
    """This Platform's id, or None before its first statement."""
    row = await tx.fetch_one("SELECT value FROM platform_values WHERE name = ?", PLATFORM_ID)
    return None if row is None else ids.PlatformId(row["value"])


def _new_platform_id() -> str:
    # 80 random bits as 16 letters and digits: told apart at a glance, safe in a URI.
    return "p-" + base64.b32encode(secrets.token_bytes(10)).decode("ascii").lower()


async def _epoch(tx: contract.Tx) -> int:
    row = await tx.fetch_one("SELECT value FROM platform_values WHERE name = ?", EPOCH)
    return FIRST_EPOCH if row is None else int(row["value"])


def _serial_after(present: Published | None, *, epoch: int) -> int:
    if present is None or present.statement.epoch != epoch:
        return 1
    return present.statement.serial + 1


async def _insert(
    tx: contract.Tx,
    *,
    statement: statements.Statement,
    content: bytes,
    signatures: Sequence[statements.Signature],
    changes_keys: bool,
) -> None:
    await tx.execute(
        "INSERT INTO trust_statements(epoch, serial, statement, signatures, changes_keys, "
        "issued_at) VALUES (?, ?, ?, ?, ?, ?)",
        statement.epoch,
        statement.serial,
        content,
        json.dumps(
            {one.key_id: base64.b64encode(one.signature).decode("ascii") for one in signatures}
        ),
        int(changes_keys),
        clock.to_micros(statement.issued_at),
    )


def _signed_of_row(row: contract.Row) -> statements.SignedStatement:
    signatures: dict[str, str] = json.loads(row["signatures"])
    return statements.SignedStatement(
        content=bytes(row["statement"]),
        signatures=tuple(
            statements.Signature(key_id=ids.KeyId(key_id), signature=base64.b64decode(signature))
            for key_id, signature in signatures.items()
        ),
    )
