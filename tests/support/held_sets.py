"""Trust sets as a machine holds them, made in memory."""

import datetime

from cryptography.hazmat.primitives.asymmetric import ed25519

from wire_protocol import ids, pins, signing, statements, trust

START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
DAY = datetime.timedelta(days=1)
PIN = pins.Pin("sha256:" + "cd" * 32)


class Key:
    """A trust key with both halves, valid from a given day for a number of days."""

    def __init__(self, *, first_day: int = 0, days: int = 365) -> None:
        self.private = ed25519.Ed25519PrivateKey.generate()
        raw = signing.public_bytes(self.private.public_key())
        self.public = statements.TrustKey(
            key_id=signing.key_id_of(raw),
            public_key=raw,
            not_before=START + first_day * DAY,
            not_after=START + (first_day + days) * DAY,
            certificate_pem="",
        )


def held(
    *keys: Key,
    serial: int = 1,
    platform_id: str = "plt_1",
    pin: pins.Pin = PIN,
    url: str | None = "https://stated.example:8444",
) -> trust.Held:
    """A set with these keys, signed by all of them."""
    content = statements.Statement(
        platform_id=ids.PlatformId(platform_id),
        epoch=1,
        serial=serial,
        issued_at=START + DAY,
        trust_keys=tuple(key.public for key in keys),
        enrollment_pins=(pin,),
        gateway_pins=(),
        enrollment_url=url,
        gateway_urls=(),
    ).to_bytes()
    signed = statements.SignedStatement(
        content=content,
        signatures=tuple(
            statements.Signature(
                key_id=key.public.key_id,
                signature=signing.sign(key.private, content, context=signing.TRUST_CONTEXT),
            )
            for key in keys
        ),
    )
    return trust.Held(signed=signed, statement=statements.parse_statement(content))
