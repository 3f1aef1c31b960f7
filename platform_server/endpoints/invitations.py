"""What the operator is handed when a token is issued: the join token, the commands, the answer.

The only place where a token's text is put into an answer. The line for a bare machine fetches the
installer from the bundle port. It is the one place where curl's `-k` stands: the machine has
nothing yet by which it could know the Platform's own certificate, and the pin decides (curl judges
`--pinnedpubkey` under `-k` as well, and sends nothing where it does not match). The token is asked
for on the terminal.
"""

import base64
import dataclasses
from collections.abc import Sequence
from typing import Final

from platform_server.tokens import issue
from wire_protocol import admin, ids, join_token, pins, times

_HERE: Final = "ENLIST_JOIN_TOKEN"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Bundles:
    """Where a machine without Enlist fetches it, and the pins it is to expect there."""

    url: str
    pins: Sequence[pins.Pin]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Invitation:
    """What a join token says of this Platform at the moment of issuing."""

    platform_url: str | None
    gateway_url: str | None
    pins: Sequence[pins.Pin]
    trust_key_ids: Sequence[ids.KeyId]
    bundles: Bundles | None = None  # None where a bare machine would find nothing to install


def answer_of(issued: issue.Issued, *, invitation: Invitation) -> admin.IssueAnswer:
    """The token, and with a Platform that knows its own address all that a machine needs."""
    enrollment = issued.enrollment
    join = (
        None
        if invitation.platform_url is None
        else join_token.encode(
            join_token.JoinToken(
                url=invitation.platform_url,
                node_id=enrollment.node_id,
                token=issued.token,
                pins=tuple(invitation.pins),
                trust_key_ids=tuple(invitation.trust_key_ids),
                expires_at=enrollment.expires_at.replace(microsecond=0),
            )
        )
    )
    return admin.IssueAnswer(
        node_id=enrollment.node_id,
        enrollment_id=enrollment.enrollment_id,
        token=issued.token.text(),
        join_token=join,
        expires_at=enrollment.expires_at,
        platform_url=invitation.platform_url,
        gateway_url=invitation.gateway_url,
        pins=list(invitation.pins),
        command=None if join is None else _command(join),
        bare_command=bare_command(invitation.bundles) if join and invitation.bundles else None,
    )


def changes_of(issued: issue.Issued) -> list[admin.Change]:
    """The same for `?check=true`: what would be issued, and what would end for it."""
    enrollment = issued.enrollment
    until = f"valid until {times.to_rfc3339(enrollment.expires_at)}"
    changes = [
        admin.Change(
            action="issue",
            target=enrollment.node_id,
            detail=f"a re-enrollment {until}; the present key ends when the new one has enrolled"
            if enrollment.reenroll
            else f"an enrollment {until}",
        )
    ]
    if issued.replaced is not None:
        changes.insert(
            0,
            admin.Change(
                action="replace",
                target=enrollment.node_id,
                detail=f"the unused enrollment {issued.replaced} ends",
            ),
        )
    return changes


def _command(join: str) -> str:
    """What to paste on the machine: the token goes in by a here-document, never as an argument."""
    return f"enlist worker join - <<'{_HERE}'\n{join}\n{_HERE}"


def bare_command(found: Bundles) -> str:
    """What to paste on a machine without Enlist.

    Known limit: install.sh takes one pin, the present one; a line that is older than the day of a
    planned switch of keys fetches the installer, which then says that the pin is another.
    """
    keys = ";".join(f"sha256//{_base64_of(pin)}" for pin in found.pins)
    return (
        f"curl -fsSk --pinnedpubkey '{keys}' {found.url}/install.sh | "
        f"sudo sh -s -- --role worker --from {found.url} --pin {found.pins[0]}"
    )


def _base64_of(pin: pins.Pin) -> str:
    return base64.b64encode(bytes.fromhex(pin.removeprefix("sha256:"))).decode("ascii")
