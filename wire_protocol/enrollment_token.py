"""The enrollment token: `ent_<id>_<secret>_<check>`.

The id is public and may be logged; the secret is 256 random bits, of which the Platform keeps
only the SHA-256; the check lets a typo fail before the network is touched. A plain hash is enough
for a secret that nobody can guess, and it is cheap under a crowd.
"""

import dataclasses
import hashlib
import re
import secrets

from wire_protocol import ids

_FORM = re.compile(r"ent_([0-9a-f]{16})_([0-9a-f]{64})_([0-9a-f]{8})")
LENGTH = len("ent_") + 16 + 1 + 64 + 1 + 8


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EnrollmentToken:
    """A token taken apart. Its secret never prints."""

    enrollment_id: ids.EnrollmentId
    secret_hex: str = dataclasses.field(repr=False)

    def text(self) -> str:
        """The whole token, for the one who may have it."""
        body = f"ent_{self.enrollment_id}_{self.secret_hex}"
        return f"{body}_{_check(body)}"

    def stored_hash(self) -> bytes:
        """What the Platform keeps: SHA-256 of the secret's 32 raw bytes."""
        return hashlib.sha256(bytes.fromhex(self.secret_hex)).digest()


def new() -> EnrollmentToken:
    """A fresh token from the kernel's random source."""
    return EnrollmentToken(
        enrollment_id=ids.EnrollmentId(secrets.token_hex(8)), secret_hex=secrets.token_hex(32)
    )


def parse(text: str) -> EnrollmentToken:
    """Reads a token; raises `ValueError` that never repeats it."""
    found = _FORM.fullmatch(text)
    if found is None:
        raise ValueError(
            "That is not an enrollment token: it starts with ent_ and is "
            f"{LENGTH} characters long. Copy it again, whole."
        )
    body, check = text[: -len("_00000000")], found.group(3)
    if _check(body) != check:
        raise ValueError("The enrollment token has a typing error: its check digits do not match.")
    return EnrollmentToken(
        enrollment_id=ids.EnrollmentId(found.group(1)), secret_hex=found.group(2)
    )


def _check(body: str) -> str:
    return hashlib.sha256(body.encode("ascii")).hexdigest()[:8]
