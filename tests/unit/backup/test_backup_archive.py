"""The plain form of a backup: whole or refused, whatever was done to it."""

import dataclasses
import datetime
import io
import json
import tarfile
import zlib
from collections.abc import Callable, Iterator

import pytest

from platform_server.backup import archive, failures, manifest

NOW = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)
HEAD = manifest.Head(
    backup_id="0011223344556677",
    enlist_version="0.1.0",
    schema=2,
    platform_id="p-aaaaaaaaaaaaaaaa",
    epoch=1,
    environment="dev",
    made_at=NOW,
    rows={"nodes": 2},
)
ROWS = b'{"node_id":"a"}\n{"node_id":"b"}\n'


def _made() -> bytes:
    writer = archive.Writer(HEAD)
    plain = writer.add("head.json", json.dumps(HEAD.to_document()).encode())
    plain += writer.add("tables/nodes/000001.jsonl", ROWS, rows=2)
    return plain + writer.finish()[0]


def _reading(content: bytes) -> Callable[[int], bytes]:
    return io.BytesIO(content).read


def _names(content: bytes) -> list[str]:
    return [member.name for member in archive.members(_reading(content))]


def test_what_was_written_is_read_and_the_manifest_comes_last() -> None:
    found = list(archive.members(_reading(_made())))
    assert [one.name for one in found] == [
        "head.json",
        "tables/nodes/000001.jsonl",
        "manifest.json",
    ]
    assert found[1].content == ROWS
    listed = manifest.parse_manifest(found[2].content)
    assert listed.head == HEAD
    assert [part.rows for part in listed.parts] == [0, 2]


def test_any_tar_program_opens_it() -> None:
    with tarfile.open(fileobj=io.BytesIO(_made()), mode="r:gz") as tar:
        assert tar.getnames() == ["head.json", "tables/nodes/000001.jsonl", "manifest.json"]
        assert {member.mode for member in tar.getmembers()} == {0o600}


def test_a_part_larger_than_the_buffers_comes_whole() -> None:
    content = bytes(range(256)) * 5000
    writer = archive.Writer(HEAD)
    plain = writer.add("tables/nodes/000001.jsonl", content) + writer.finish()[0]
    pieces = _in_pieces(plain, size=7)
    read = archive.members(lambda _most: next(pieces, b""))
    assert next(read).content == content


def _in_pieces(content: bytes, *, size: int) -> Iterator[bytes]:
    for start in range(0, len(content), size):
        yield content[start : start + size]


def test_cut_anywhere_it_is_refused() -> None:
    whole = _made()
    for length in range(len(whole)):
        with pytest.raises(failures.Damaged):
            _names(whole[:length])


def test_any_changed_byte_of_a_part_is_refused() -> None:
    plain = zlib.decompress(_made(), 31)
    for place in range(0, len(plain) - 1024, 41):
        changed = bytearray(plain)
        changed[place] ^= 1
        squeeze = zlib.compressobj(1, zlib.DEFLATED, 31)
        content = squeeze.compress(bytes(changed)) + squeeze.flush()
        if bytes(changed) == plain:
            continue
        try:
            names = _names(content)
        except (failures.Damaged, failures.Newer):
            continue
        # bits that no reader looks at: owner and times of the tar header
        assert names == _names(_made())


@dataclasses.dataclass(frozen=True, kw_only=True)
class Foreign:
    """A member that no backup holds."""

    name: str = "tables/nodes/000001.jsonl"
    kind: bytes = tarfile.REGTYPE
    size: int | None = None


FOREIGN = {
    "a path that leaves the folder": Foreign(name="../master.key"),
    "a full path": Foreign(name="/etc/passwd"),
    "a settings file of another name": Foreign(name="config/evil.toml"),
    "a settings file in another folder": Foreign(name="config/../config.toml"),
    "a link": Foreign(kind=tarfile.SYMTYPE),
    "a device": Foreign(kind=tarfile.CHRTYPE),
    "a long name in the pax form": Foreign(kind=tarfile.XHDTYPE),
    "a part of more than any part has": Foreign(size=archive.MOST_PART_BYTES + 1),
}


@pytest.mark.parametrize("foreign", FOREIGN.values(), ids=FOREIGN.keys())
def test_what_no_backup_holds_is_refused(foreign: Foreign) -> None:
    info = tarfile.TarInfo(foreign.name)
    info.type = foreign.kind
    info.size = len(ROWS) if foreign.size is None else foreign.size
    squeeze = zlib.compressobj(1, zlib.DEFLATED, 31)
    content = squeeze.compress(info.tobuf(tarfile.USTAR_FORMAT)) + squeeze.compress(ROWS)
    with pytest.raises(failures.Damaged):
        _names(content + squeeze.flush())


def test_a_part_that_is_left_out_doubled_or_swapped_is_refused() -> None:
    parts = {"master.key": b"emk", "tables/nodes/000001.jsonl": ROWS}
    writer = archive.Writer(HEAD)
    for name, content in parts.items():
        writer.add(name, content)
    _, listed = writer.finish()
    for order in (["master.key"], [*parts, "master.key"], list(reversed(parts))):
        squeeze = zlib.compressobj(1, zlib.DEFLATED, 31)
        plain = b"".join(_member(name, parts[name]) for name in order)
        plain += _member("manifest.json", listed.to_bytes()) + bytes(1024)
        with pytest.raises(failures.Damaged, match="manifest lists"):
            _names(squeeze.compress(plain) + squeeze.flush())


def _member(name: str, content: bytes) -> bytes:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    return info.tobuf(tarfile.USTAR_FORMAT) + content + bytes(-len(content) % 512)


def test_what_goes_on_after_the_end_is_refused() -> None:
    with pytest.raises(failures.Damaged, match="after its end"):
        _names(_made() + b"more")
    with pytest.raises(failures.Damaged, match="after its end"):
        _names(_made() + _made())


def test_the_form_of_a_newer_enlist_is_told_from_a_damaged_one() -> None:
    document = {**HEAD.to_document(), "format": 2, "enlist_version": "7.0.0"}
    with pytest.raises(failures.Newer, match=r"install Enlist 7\.0\.0"):
        manifest.parse_head(json.dumps(document).encode())
    for raw in (b"", b"[]", b"{}", b'{"format":"1"}', b'{"format":1}', b"\xff", b"[" * 100_000):
        with pytest.raises(failures.Damaged):
            manifest.parse_head(raw)
