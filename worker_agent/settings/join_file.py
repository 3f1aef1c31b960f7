"""`join.json`: how this machine authenticated the Platform when it joined.

The mode and the pins recorded here never change by themselves; what a signed statement adds later
stands in `trust.json` and counts in pin mode only.
"""

import dataclasses
import datetime
import enum
import pathlib

from runtime_kit import private_files
from wire_protocol import ids, pins, times
from worker_agent.settings import documents

_MOST_PINS = 64  # a join writes at most 16
_MAX_CA = 65_536  # what a join accepts as a CA file


class Mode(enum.StrEnum):
    """What proves that the other end is the Platform."""

    PINS = "pins"
    CA_FILE = "ca-file"
    PINS_AND_CA_FILE = "pins-and-ca-file"
    PUBLIC_ROOTS = "public-roots"

    @property
    def adopts_statements(self) -> bool:
        """Whether pins and addresses from signed statements count (in pin mode only)."""
        return self is Mode.PINS


def mode_of(*, has_pins: bool, has_ca: bool) -> Mode:
    """The mode that follows from what was given: both must hold where both were given."""
    if has_pins:
        return Mode.PINS_AND_CA_FILE if has_ca else Mode.PINS
    return Mode.CA_FILE if has_ca else Mode.PUBLIC_ROOTS


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class JoinFile:
    """The record of one join."""

    platform_url: str
    platform_id: ids.PlatformId
    node_id: ids.NodeId
    mode: Mode
    given_pins: tuple[pins.Pin, ...]  # as typed: may be hashes of whole certificates
    pins: tuple[pins.Pin, ...]
    ca_pem: str | None
    enrollment_id: ids.EnrollmentId
    joined_at: datetime.datetime


def read(
    path: pathlib.Path, *, reader: private_files.Reader = private_files.read_private
) -> JoinFile | None:
    """The file's content, or None on a machine that has not joined; raises `Damaged`."""
    fields = documents.read(path, reader=reader)
    if fields is None:
        return None
    try:
        return JoinFile(
            platform_url=fields.text("platform_url"),
            platform_id=ids.PlatformId(fields.text("platform_id")),
            node_id=ids.parse_node_id(fields.text("node_id")),
            mode=Mode(fields.text("mode")),
            pins=tuple(pins.parse_pin(text) for text in fields.texts("pins", most=_MOST_PINS)),
            given_pins=tuple(
                pins.parse_pin(text) for text in fields.texts("given_pins", most=_MOST_PINS)
            ),
            ca_pem=fields.text("ca_pem", most=_MAX_CA) if fields.has("ca_pem") else None,
            enrollment_id=ids.EnrollmentId(fields.text("enrollment_id")),
            joined_at=fields.moment("joined_at"),
        )
    except ValueError as error:
        raise documents.Damaged(f"{path} is damaged: {error}") from error


def write(path: pathlib.Path, content: JoinFile) -> None:
    """Replaces the file in one step."""
    documents.write(
        path,
        {
            "platform_url": content.platform_url,
            "platform_id": content.platform_id,
            "node_id": content.node_id,
            "mode": content.mode.value,
            "pins": list(content.pins),
            "given_pins": list(content.given_pins),
            "ca_pem": content.ca_pem,
            "enrollment_id": content.enrollment_id,
            "joined_at": times.to_rfc3339(content.joined_at),
        },
    )
