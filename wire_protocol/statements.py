"""Trust keys and the signed statement that carries them.

A statement says: these are my trust keys, pins and addresses, this is its number. It travels as
exact bytes, since the signature covers those bytes and not what a parser made of them. Here is the
form alone; whether a machine believes one is `trust.py`.
"""

import base64
import dataclasses
import datetime
from collections.abc import Iterable

from wire_protocol import ids, pins, signing, strict_json, times

MAX_STATEMENT_BYTES = 32_768
MAX_ANSWER_BYTES = 1_048_576
MAX_KEYS = 16
MAX_SIGNATURES = 16
MAX_CHAIN = 16
MAX_PINS = 16
MAX_URLS = 64
_MAX_PEM = 4096
_MAX_URL = 512


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TrustKey:
    """A public Ed25519 key of the Platform with its window of validity."""

    key_id: ids.KeyId
    public_key: bytes
    not_before: datetime.datetime
    not_after: datetime.datetime
    certificate_pem: str

    def is_valid_at(self, moment: datetime.datetime) -> bool:
        """Whether the moment lies in the key's window."""
        return self.not_before <= moment <= self.not_after

    def to_wire(self) -> dict[str, str]:
        """The key as it stands in answers and statements."""
        return {
            "key_id": self.key_id,
            "algorithm": "Ed25519",
            "public_key": base64.b64encode(self.public_key).decode(),
            "not_before": times.to_rfc3339(self.not_before),
            "not_after": times.to_rfc3339(self.not_after),
            "certificate_pem": self.certificate_pem,
        }


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """What the Platform says of itself, under one number."""

    platform_id: ids.PlatformId
    epoch: int
    serial: int
    issued_at: datetime.datetime
    trust_keys: tuple[TrustKey, ...]
    enrollment_pins: tuple[pins.Pin, ...]
    gateway_pins: tuple[pins.Pin, ...]
    enrollment_url: str | None
    gateway_urls: tuple[str, ...]

    @property
    def number(self) -> tuple[int, int]:
        """Epoch and serial: what orders statements."""
        return self.epoch, self.serial

    def to_bytes(self) -> bytes:
        """The exact bytes to sign and send."""
        return strict_json.write(
            {
                "platform_id": self.platform_id,
                "epoch": self.epoch,
                "serial": self.serial,
                "issued_at": times.to_rfc3339(self.issued_at),
                "trust_keys": [key.to_wire() for key in self.trust_keys],
                "pins": {
                    "enrollment": list(self.enrollment_pins),
                    "gateway": list(self.gateway_pins),
                },
                "urls": {
                    "enrollment": self.enrollment_url,
                    "gateway": list(self.gateway_urls),
                },
            }
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """One key's signature under a statement or an order."""

    key_id: ids.KeyId
    signature: bytes


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SignedStatement:
    """A statement's exact bytes with the signatures over them."""

    content: bytes
    signatures: tuple[Signature, ...]

    def to_wire(self) -> dict[str, object]:
        """`statement` and `signatures`, as answers carry them."""
        return {
            "statement": base64.b64encode(self.content).decode(),
            "signatures": signatures_to_wire(self.signatures),
        }


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TrustAnswer:
    """The present statement and the last ones that changed keys, oldest first."""

    present: SignedStatement
    chain: tuple[SignedStatement, ...]


def parse_statement(content: bytes) -> Statement:
    """Reads a statement's bytes; raises `strict_json.Malformed`."""
    fields = strict_json.read(content, what="statement", most=MAX_STATEMENT_BYTES)
    pin_fields, url_fields = fields.inner("pins"), fields.inner("urls")
    with strict_json.judged():
        return Statement(
            platform_id=ids.PlatformId(fields.text("platform_id", most=64)),
            epoch=fields.integer("epoch"),
            serial=fields.integer("serial"),
            issued_at=fields.moment("issued_at"),
            trust_keys=parse_trust_keys(fields.items("trust_keys", most=MAX_KEYS)),
            enrollment_pins=_pins(pin_fields, "enrollment"),
            gateway_pins=_pins(pin_fields, "gateway"),
            enrollment_url=(
                url_fields.text("enrollment", most=_MAX_URL)
                if url_fields.has("enrollment")
                else None
            ),
            gateway_urls=url_fields.texts("gateway", most=MAX_URLS, longest=_MAX_URL),
        )


def parse_trust_keys(items: list[object]) -> tuple[TrustKey, ...]:
    """Reads a list of trust keys; raises `strict_json.Malformed`."""
    return tuple(_trust_key(item) for item in items)


def parse_signed(fields: strict_json.Fields) -> SignedStatement:
    """Reads `statement` and `signatures` from an answer; raises `strict_json.Malformed`."""
    return SignedStatement(
        content=fields.raw("statement", most=MAX_STATEMENT_BYTES),
        signatures=parse_signatures(fields),
    )


def signatures_to_wire(signatures: Iterable[Signature]) -> list[dict[str, str]]:
    """The list `signatures`, as it stands beside what was signed."""
    return [
        {"key_id": one.key_id, "signature": base64.b64encode(one.signature).decode()}
        for one in signatures
    ]


def parse_signatures(fields: strict_json.Fields) -> tuple[Signature, ...]:
    """Reads the list `signatures`; raises `strict_json.Malformed`."""
    entries = [
        strict_json.Fields(item, what="signature")
        for item in fields.items("signatures", most=MAX_SIGNATURES)
    ]
    return tuple(
        Signature(
            key_id=_key_id(entry), signature=entry.raw("signature", most=signing.SIGNATURE_BYTES)
        )
        for entry in entries
    )


def parse_answer(raw: bytes) -> TrustAnswer:
    """Reads the body of an answer to `POST /trust` or `POST /enroll`; raises `Malformed`."""
    fields = strict_json.read(raw, what="answer", most=MAX_ANSWER_BYTES)
    chain = fields.items("chain", most=MAX_CHAIN) if fields.has("chain") else []
    return TrustAnswer(
        present=parse_signed(fields),
        chain=tuple(parse_signed(strict_json.Fields(item, what="chain")) for item in chain),
    )


def _trust_key(item: object) -> TrustKey:
    fields = strict_json.Fields(item, what="trust key")
    if fields.text("algorithm", most=16) != "Ed25519":
        raise strict_json.Malformed("A trust key's algorithm must be Ed25519.")
    public_key = fields.raw("public_key", most=signing.PUBLIC_KEY_BYTES)
    key = TrustKey(
        key_id=_key_id(fields),
        public_key=public_key,
        not_before=fields.moment("not_before"),
        not_after=fields.moment("not_after"),
        certificate_pem=fields.text("certificate_pem", most=_MAX_PEM),
    )
    if len(public_key) != signing.PUBLIC_KEY_BYTES or signing.key_id_of(public_key) != key.key_id:
        raise strict_json.Malformed("A trust key's id must be the hash of its public key.")
    if key.not_before >= key.not_after:
        raise strict_json.Malformed("A trust key's window must end after it begins.")
    return key


def _key_id(fields: strict_json.Fields) -> ids.KeyId:
    with strict_json.judged():
        return ids.parse_key_id(fields.text("key_id", most=16))


def _pins(fields: strict_json.Fields, name: str) -> tuple[pins.Pin, ...]:
    return tuple(pins.parse_pin(pin) for pin in fields.texts(name, most=MAX_PINS, longest=128))
