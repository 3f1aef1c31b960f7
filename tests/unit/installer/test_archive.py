"""Archives made by hand, one thing wrong with each."""

import contextlib
import dataclasses
import hashlib
import io
import tarfile

import pytest

from installer import archive
from installer import release as release_format
from installer.release import BadRelease

PAYLOAD = b"payload" * 1000
RELEASE = release_format.Release(
    role="worker",
    version="1.2.3",
    arch="x86_64",
    pythons=("3.11",),
    commit="a" * 40,
    made_at="2026-01-31T12:00:00Z",
    payload_sha256=hashlib.sha256(PAYLOAD).hexdigest(),
)
SIGNATURE = b"s" * 64


def members(**changes: bytes) -> dict[str, bytes]:
    files = {
        "release.json": changes.get("release_json", RELEASE.to_bytes()),
        "install.sh": b"#!/bin/sh\n",
        "payload.tar.xz": PAYLOAD,
    }
    manifest = release_format.sums(
        (name, hashlib.sha256(data).hexdigest()) for name, data in files.items()
    )
    return {"manifest": manifest, "manifest.sig": changes.get("signature", SIGNATURE), **files}


def packed(files: dict[str, bytes]) -> bytes:
    return b"".join(
        (
            *(
                piece
                for name, data in files.items()
                for piece in (
                    archive.header(name, len(data)),
                    data,
                    archive.padding(len(data)),
                )
            ),
            archive.END,
        )
    )


def read(data: bytes, *, trusted: bool = True) -> archive.Archive:
    return archive.read(io.BytesIO(data), verify=lambda _manifest, _signature: trusted)


def test_a_whole_archive_says_what_it_holds_and_where() -> None:
    data = packed(members())
    found = read(data)
    assert found.release == RELEASE
    assert found.install_sh == b"#!/bin/sh\n"
    assert data[found.payload_offset : found.payload_offset + found.payload_size] == PAYLOAD
    assert found.size == len(data)
    assert found.sha256 == hashlib.sha256(data).hexdigest()


def test_the_signature_is_asked_about_the_exact_manifest() -> None:
    asked = []

    def verify(manifest: bytes, signature: bytes) -> bool:
        asked.append((manifest, signature))
        return True

    archive.read(io.BytesIO(packed(members())), verify=verify)
    assert asked == [(members()["manifest"], SIGNATURE)]


def test_nothing_after_the_manifest_is_read_without_a_trusted_signature() -> None:
    file = io.BytesIO(packed(members()))
    with pytest.raises(BadRelease, match="not signed by a release key that is trusted"):
        archive.read(file, verify=lambda _manifest, _signature: False)
    assert file.tell() == 4 * archive.BLOCK


def test_a_signature_of_another_length_is_not_even_tried() -> None:
    with pytest.raises(BadRelease, match="not signed"):
        read(packed(members(signature=b"s" * 63)))


def test_other_programs_read_the_same_members() -> None:
    with tarfile.open(fileobj=io.BytesIO(packed(members())), mode="r:") as tar:
        found = {}
        for member in tar.getmembers():
            file = tar.extractfile(member)
            assert file is not None
            found[member.name] = file.read()
            assert (member.mode, member.uid, member.type) == (0o644, 0, tarfile.REGTYPE)
    assert found == members()


def as_tarfile_would_write(files: dict[str, bytes], *, kind: bytes = tarfile.REGTYPE) -> bytes:
    room = io.BytesIO()
    with tarfile.open(fileobj=room, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            member.type = kind
            tar.addfile(member, io.BytesIO(data))
    return room.getvalue()


GOOD = members()
REVERSED = dict(reversed(list(GOOD.items())))
OTHER_PAYLOAD = dataclasses.replace(RELEASE, payload_sha256="0" * 64).to_bytes()
WRONG = {
    "cut off": packed(GOOD)[:-1],
    "cut off in the payload": packed(GOOD)[:5000],
    "empty": b"",
    "something after the end": packed(GOOD) + b"\0",
    "no end": packed(GOOD)[: -len(archive.END)] + b"x" * len(archive.END),
    "a member less": packed({name: GOOD[name] for name in release_format.MEMBERS[:-1]}),
    "a member more": packed({**GOOD, "more": b""}),
    "members in another order": packed(REVERSED),
    "a payload that was changed": packed({**GOOD, "payload.tar.xz": PAYLOAD[:-1] + b"x"}),
    "a release.json that was changed": packed({**GOOD, "release.json": OTHER_PAYLOAD}),
    "an install.sh that was changed": packed({**GOOD, "install.sh": b"#!/bin/sh\nreboot\n"}),
    "another payload than release.json says": packed(members(release_json=OTHER_PAYLOAD)),
    "a manifest that is none": packed({**GOOD, "manifest": b"x\n"}),
    "a name with a path": packed({f"./{name}": data for name, data in GOOD.items()}),
    "headers of another kind": as_tarfile_would_write(GOOD),
    "links in place of files": as_tarfile_would_write(GOOD, kind=tarfile.SYMTYPE),
    "padding that says something": packed(GOOD)[:1023] + b"x" + packed(GOOD)[1024:],
    "no archive": b"\x7fELF" * 1000,
}


@pytest.mark.parametrize("data", WRONG.values(), ids=WRONG.keys())
def test_an_archive_is_refused_that_is_not_exactly_what_was_signed(data: bytes) -> None:
    with pytest.raises(BadRelease):
        read(data)


def test_no_byte_of_an_archive_can_be_changed_unnoticed() -> None:
    data = packed(GOOD)

    def verify(manifest: bytes, signature: bytes) -> bool:
        return (manifest, signature) == (GOOD["manifest"], SIGNATURE)

    unnoticed = []
    for place in range(0, len(data), 7):  # a prime step: every kind of field is met, in good time
        changed = bytearray(data)
        changed[place] ^= 1
        with contextlib.suppress(BadRelease):
            archive.read(io.BytesIO(changed), verify=verify)
            unnoticed.append(place)
    assert unnoticed == []


def test_a_member_larger_than_enlist_makes_it_is_refused_before_it_is_read() -> None:
    most = release_format.MOST_BYTES["manifest"]
    file = io.BytesIO(archive.header("manifest", most + 1) + bytes(2 * most))
    with pytest.raises(BadRelease, match="larger than Enlist makes it"):
        archive.read(file, verify=lambda _manifest, _signature: True)
    assert file.tell() == archive.BLOCK
