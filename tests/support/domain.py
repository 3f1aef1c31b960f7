"""The Platform's domain over a real store, without a server: what most of its tests stand on."""

import dataclasses
import datetime
import functools
import json
import pathlib
from collections.abc import Sequence
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from platform_server.endpoints import enroll_decision, enroll_door
from platform_server.enrollment import attempts, limiter
from platform_server.nodes import configured, reach, registry
from platform_server.sealing import envelope
from platform_server.settings import groups
from platform_server.store import contract
from platform_server.tokens import issue
from platform_server.trust import authority, client_certificate, statements
from runtime_kit import clock as clock_kit
from wire_protocol import ids, product

START = datetime.datetime(2026, 3, 1, 12, 0, 0, tzinfo=datetime.UTC)
LIMITS = limiter.Limits(per_minute=120, per_address=30, per_token=10)
CAP = attempts.Cap(entries=500, days=30)
PEER = "192.0.2.7"
REQUEST = "00112233445566ff"

Key = ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey | rsa.RSAPrivateKey


def new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def certificate_of(key: Key, *, signed_by: Key | None = None, name: str = "machine") -> str:
    """A self-signed certificate, or with `signed_by` one that another key signed."""
    signer = key if signed_by is None else signed_by
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    algorithm = None if isinstance(signer, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(START - datetime.timedelta(hours=1))
        .not_valid_after(START + datetime.timedelta(days=3650))
        .sign(signer, algorithm)
    )
    return made.public_bytes(serialization.Encoding.PEM).decode()


def new_certificate() -> str:
    return certificate_of(new_key())


def settings_of(**sections: Any) -> groups.Settings:
    return groups.Settings.model_validate(sections)


def new_keyring() -> envelope.Keyring:
    key = envelope.new_key()
    return envelope.Keyring([key], current=key.kek_id)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Said:
    """What the door answered, read."""

    status: int
    body: dict[str, Any]
    raw: bytes
    retry_after: int | None


@dataclasses.dataclass(kw_only=True)
class Domain:
    """One engine's domain on a store."""

    store: contract.Store
    clock: clock_kit.ManualClock
    keyring: envelope.Keyring
    operators: configured.ConfiguredNodes
    trust: authority.Authority
    door: enroll_door.EnrollDoor

    async def new_token(self, node_id: str, **given: Any) -> issue.Issued:
        """Issues a token as the route does."""
        wanted = ids.parse_node_id(node_id)
        fields: dict[str, Any] = {
            "replace": False,
            "ttl_minutes": 60,
            "labels": {},
            "sources": [],
            "infra": "default",
            "created_by": "local:0",
            "now": self.clock.now(),
            **given,
        }

        ask = functools.partial(registry.standing_of, node_id=wanted, operators=self.operators)
        return await self.store.transact(
            lambda tx: issue.issue(tx, node_id=wanted, **{"ask": ask, **fields})
        )

    async def knock(
        self,
        node_id: str,
        token: str | issue.Issued,
        *,
        certificate: str | None = None,
        address: str | None = PEER,
        **more: Any,
    ) -> Said:
        """One enroll request."""
        body = {
            "node_id": node_id,
            "token": token if isinstance(token, str) else token.token.text(),
            "certificate_pem": certificate or new_certificate(),
            "version": product.VERSION,
            **more,
        }
        return await self.send(json.dumps(body).encode(), address=address)

    async def send(self, body: bytes, *, address: str | None = PEER) -> Said:
        """One enroll request with this very body."""
        answered = await self.door.answer_enroll(body, address=address, request_id=REQUEST)
        return Said(
            status=answered.status,
            body=json.loads(answered.body or b"{}"),
            raw=answered.body,
            retry_after=answered.retry_after_seconds,
        )

    async def audit(self) -> Sequence[tuple[str, str | None, int]]:
        """Outcome, reason and count of each entry, the last to happen first."""
        found = await self.store.read(lambda tx: attempts.list_page(tx, limit=1000))
        return [(one.outcome.value, one.reason, one.count) for one in found]

    async def remove(self, node_id: str) -> None:
        await self.store.transact(
            lambda tx: registry.remove(
                tx,
                node_id=ids.parse_node_id(node_id),
                operators=self.operators,
                now=self.clock.now(),
            )
        )

    async def allow(self, node_id: str) -> None:
        await self.store.transact(
            lambda tx: registry.allow(
                tx,
                node_id=ids.parse_node_id(node_id),
                operators=self.operators,
                now=self.clock.now(),
            )
        )

    async def mark_ready(self, node_id: str) -> None:
        """As the probe does when the node has answered."""
        moment = clock_kit.to_micros(self.clock.now())
        await self.store.transact(
            lambda tx: tx.execute(
                "UPDATE nodes SET state = 'ready', first_ready_at = ? WHERE node_id = ?",
                moment,
                node_id,
            )
        )

    async def count(self, table: str, where: str = "1 = 1") -> int:
        """Rows of a table."""
        row = await self.store.read(
            lambda tx: tx.fetch_one(
                f"SELECT COUNT(*) AS n FROM {table} WHERE {where}"  # noqa: S608 - a test's own
            )
        )
        assert row is not None
        return int(row["n"])


async def build(
    store: contract.Store,
    *,
    folder: pathlib.Path,
    settings: groups.Settings | None = None,
    keyring: envelope.Keyring | None = None,
    clock: clock_kit.ManualClock | None = None,
    limits: limiter.Limits = LIMITS,
    cap: attempts.Cap = CAP,
    reacher: reach.Reacher | None = None,
    facts: statements.Facts | None = None,
) -> Domain:
    """A domain over the store; give keyring and clock to build a second engine on it."""
    settings = settings or settings_of()
    keyring = keyring or new_keyring()
    clock = clock or clock_kit.ManualClock(START)
    operators = configured.of_settings(settings)
    trust = authority.Authority(
        store,
        keyring=keyring,
        clock=clock,
        identity=client_certificate.ClientIdentity(folder / "client.pem"),
        environment="test",
    )
    await trust.start(facts or statements.Facts())
    door = enroll_door.EnrollDoor(
        store,
        trust=trust,
        operators=operators,
        reacher=reacher,
        rules=enroll_decision.Rules(
            infra="default",
            environment="test",
            limits=limits,
            cap=cap,
            agent_networks=tuple(settings.enrollment.agent_networks),
        ),
        clock=clock,
    )
    return Domain(
        store=store,
        clock=clock,
        keyring=keyring,
        operators=operators,
        trust=trust,
        door=door,
    )
