"""The ticket of an ordered machine: one signed document that holds all it needs to enroll.

The document carries the Platform's address and pins, what to install, the node id, and the
enrollment token, bound to one operation and one attempt. First boot takes everything from it and
shows it as it came: the Platform checks the signature over the exact bytes before it looks anything
up, so first-boot data that somebody has edited is refused. In the request it travels as
`{document, signature, key_id}`, the document and the signature in base64.

It names no end: only the Platform's clock and the enrollment's row decide how long it is good.
"""

import base64
import dataclasses
import datetime
import re
from collections.abc import Iterable, Mapping
from typing import Final

from wire_protocol import (
    enrollment_token,
    ids,
    pins,
    signing,
    statements,
    strict_json,
    times,
)

CONTEXT: Final = "enlist-ticket-v1"
VERSION: Final = 1
MAX_DOCUMENT_BYTES: Final = 6144  # 8192 characters of base64
MAX_TICKET_BYTES: Final = 9216
_MAX_URL: Final = 512
_MAX_PINS: Final = 16
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


class Refused(Exception):
    """The ticket is not one of this Platform's; the message says why, for the log alone."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """What the machine installs, and where it is.

    `archives` and `installers`: by processor, the SHA-256 in hex of the archive and of the script
    that installs it. Whoever holds the bundle port's key alone can have nothing else run.
    """

    url: str
    pins: tuple[pins.Pin, ...]
    archives: Mapping[str, str]
    installers: Mapping[str, str]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """What is signed. `token` is the secret half; it opens only with this very document.

    `expires_at` lets the machine add a hint to a refusal and decides nothing.
    """

    platform_id: ids.PlatformId
    installation: str
    infra: str
    node_id: ids.NodeId
    operation_id: str
    attempt: int
    url: str
    pins: tuple[pins.Pin, ...]
    trust_key_ids: tuple[ids.KeyId, ...]
    issued_at: datetime.datetime
    expires_at: datetime.datetime
    bundle: Bundle | None
    token: enrollment_token.EnrollmentToken = dataclasses.field(repr=False)

    def to_bytes(self) -> bytes:
        """The exact bytes to sign and send; raises `ValueError` past 6 KiB."""
        bundle = self.bundle
        content = strict_json.write(
            {
                "v": VERSION,
                "platform_id": self.platform_id,
                "installation": self.installation,
                "infra": self.infra,
                "node_id": self.node_id,
                "operation": self.operation_id,
                "attempt": self.attempt,
                "platform_url": self.url,
                "pins": list(self.pins),
                "trust_key_ids": list(self.trust_key_ids),
                "issued_at": times.to_rfc3339(self.issued_at),
                "expires_at": times.to_rfc3339(self.expires_at),
                "token": self.token.text(),
                "bundle_url": None if bundle is None else bundle.url,
                "bundle_pins": [] if bundle is None else list(bundle.pins),
                "bundles": {} if bundle is None else dict(bundle.archives),
                "installers": {} if bundle is None else dict(bundle.installers),
            }
        )
        if len(content) > MAX_DOCUMENT_BYTES:
            raise ValueError(f"A ticket has at most {MAX_DOCUMENT_BYTES} bytes.")
        return content


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """A document's exact bytes with one trust key's signature over them."""

    content: bytes = dataclasses.field(repr=False)
    signature: bytes
    key_id: ids.KeyId

    def to_wire(self) -> dict[str, str]:
        """`{document, signature, key_id}`: as the enroll request carries it."""
        return {
            "document": base64.b64encode(self.content).decode("ascii"),
            "signature": base64.b64encode(self.signature).decode("ascii"),
            "key_id": self.key_id,
        }

    def to_bytes(self) -> bytes:
        """The ticket file that first boot writes, ASCII."""
        return strict_json.write(self.to_wire())


def sealed_by(document: Document, signature: statements.Signature, *, content: bytes) -> Ticket:
    """The ticket of a document whose bytes were signed; raises `ValueError` for other bytes."""
    if content != document.to_bytes():
        raise ValueError("Another document was signed than this one.")
    return Ticket(content=content, signature=signature.signature, key_id=signature.key_id)


def parse(raw: bytes) -> Ticket:
    """Reads a ticket file; raises `strict_json.Malformed`. Nothing is believed by that."""
    return of_fields(strict_json.read(raw, what="ticket", most=MAX_TICKET_BYTES))


def of_fields(fields: strict_json.Fields) -> Ticket:
    """Reads the three fields; raises `strict_json.Malformed`."""
    with strict_json.judged():
        return Ticket(
            content=fields.raw("document", most=MAX_DOCUMENT_BYTES),
            signature=fields.raw("signature", most=signing.SIGNATURE_BYTES),
            key_id=ids.parse_key_id(fields.text("key_id", most=16)),
        )


def of_wire(document: str, signature: str, key_id: str) -> Ticket:
    """The ticket of an enroll request's three texts; raises `strict_json.Malformed`."""
    content = {"document": document, "signature": signature, "key_id": key_id}
    return of_fields(strict_json.Fields(content, what="ticket"))


def read_document(content: bytes) -> Document:
    """What a document says, unproved: for the machine, which was handed it by its provider.

    Raises `strict_json.Malformed`.
    """
    fields = strict_json.read(content, what="ticket", most=MAX_DOCUMENT_BYTES)
    version = fields.integer("v", most=1_000_000)
    if version != VERSION:
        raise strict_json.Malformed(
            f"The ticket has form {version}, which this Enlist does not know: update Enlist."
        )
    with strict_json.judged():
        return Document(
            platform_id=ids.PlatformId(fields.text("platform_id", most=64)),
            installation=fields.text("installation", most=64),
            infra=fields.text("infra", most=64),
            node_id=ids.parse_node_id(fields.text("node_id", most=64)),
            operation_id=fields.text("operation", most=64),
            attempt=fields.integer("attempt", least=1, most=1000),
            url=fields.text("platform_url", most=_MAX_URL),
            pins=_pins(fields, "pins"),
            trust_key_ids=tuple(
                ids.parse_key_id(one) for one in fields.texts("trust_key_ids", most=16)
            ),
            issued_at=fields.moment("issued_at"),
            expires_at=fields.moment("expires_at"),
            bundle=_bundle(fields),
            token=enrollment_token.parse(fields.text("token", most=enrollment_token.LENGTH)),
        )


def verify(
    ticket: Ticket, *, trust_keys: Iterable[statements.TrustKey], now: datetime.datetime
) -> Document:
    """The document, once a trust key that is valid now is known to have signed it.

    Nothing that an unproved text says is read before its signature. Raises `Refused`.
    """
    key = next((one for one in trust_keys if one.key_id == ticket.key_id), None)
    if key is None or not key.is_valid_at(now):
        raise Refused("No trust key that is valid now signed the ticket.")
    if not signing.is_signed_by(
        key.public_key, ticket.content, signature=ticket.signature, context=CONTEXT
    ):
        raise Refused("The ticket's signature does not fit its document: it was edited.")
    try:
        return read_document(ticket.content)
    except strict_json.Malformed as fault:
        raise Refused(str(fault)) from fault


def _bundle(fields: strict_json.Fields) -> Bundle | None:
    if not fields.has("bundle_url"):
        return None
    return Bundle(
        url=fields.text("bundle_url", most=_MAX_URL),
        pins=_pins(fields, "bundle_pins"),
        archives=_hashes(fields, "bundles"),
        installers=_hashes(fields, "installers"),
    )


def _hashes(fields: strict_json.Fields, name: str) -> Mapping[str, str]:
    hashes = fields.value(name)
    if not isinstance(hashes, dict) or not all(
        isinstance(key, str) and isinstance(value, str) and _SHA256.fullmatch(value)
        for key, value in hashes.items()
    ):
        raise strict_json.Malformed(f"ticket.{name} must give a SHA-256 for each processor.")
    return hashes


def _pins(fields: strict_json.Fields, name: str) -> tuple[pins.Pin, ...]:
    return tuple(pins.parse_pin(one) for one in fields.texts(name, most=_MAX_PINS))
