import dataclasses
import json

import pytest

from installer import release
from installer.release import BadRelease, Release

GOOD = Release(
    role="worker",
    version="1.2.3",
    arch="x86_64",
    pythons=("3.11", "3.13"),
    commit="a" * 40,
    made_at="2026-01-31T12:00:00Z",
    payload_sha256="b" * 64,
)
DOCUMENT = json.loads(GOOD.to_bytes())


def spelled(**changes: object) -> bytes:
    return (json.dumps({**DOCUMENT, **changes}, indent=2) + "\n").encode()


def test_a_release_reads_back_as_it_was_written() -> None:
    assert release.parse_release(GOOD.to_bytes()) == GOOD


def test_a_release_is_known_by_its_version_and_a_hash_of_all_it_says() -> None:
    other = dataclasses.replace(GOOD, payload_sha256="c" * 64)
    assert GOOD.id.startswith("1.2.3-")
    assert len(GOOD.id) == len("1.2.3-") + 12
    assert GOOD.id != other.id


def test_an_archives_name_says_what_it_is_and_reads_back() -> None:
    assert release.name_of(GOOD.archive_name) == ("worker", "1.2.3", "x86_64")


@pytest.mark.parametrize(
    "name",
    [
        "enlist-worker-1.2.3-x86_64.tar\n",
        "enlist-worker-1.2-x86_64.tar",
        "enlist-worker-01.2.3-x86_64.tar",
        "enlist-worker-1.2.3-riscv64.tar",
        "enlist-helper-1.2.3-x86_64.tar",
        "../enlist-worker-1.2.3-x86_64.tar",
        "enlist-worker-1.2.3-x86_64.tar.xz",
    ],
)
def test_other_names_are_no_archives(name: str) -> None:
    assert release.name_of(name) is None


REFUSED = {
    "another format": spelled(format=2),
    "a format of another type": spelled(format="1"),
    "another role": spelled(role="helper"),
    "another architecture": spelled(arch="riscv64"),
    "a version of another form": spelled(version="1.2.3-rc1"),
    "a version with a path": spelled(version="../1.2.3"),
    "no Python": spelled(pythons=[]),
    "an unknown Python": spelled(pythons=["3.10"]),
    "a Python that is no text": spelled(pythons=[3.11]),
    "Pythons out of order": spelled(pythons=["3.13", "3.11"]),
    "a Python twice": spelled(pythons=["3.11", "3.11"]),
    "no commit": spelled(commit=None),
    "a short hash": spelled(payload_sha256="b" * 63),
    "a hash in upper case": spelled(payload_sha256="B" * 64),
    "a field more": spelled(extra=1),
    "a field less": json.dumps({**DOCUMENT, "arch": None}).encode(),
    "another spelling": json.dumps(DOCUMENT).encode(),
    "a key twice": GOOD.to_bytes().replace(b'"role"', b'"role": "platform",\n  "role"'),
    "a list": b"[]",
    "no JSON": b"{",
    "nested without end": b"[" * 16000,
    "too long": b" " * 20_000,
}


@pytest.mark.parametrize("data", REFUSED.values(), ids=REFUSED.keys())
def test_what_is_not_spelled_as_enlist_spells_it_is_refused(data: bytes) -> None:
    with pytest.raises(BadRelease):
        release.parse_release(data)


def test_an_archive_of_a_later_format_names_the_next_step() -> None:
    with pytest.raises(BadRelease, match=r"use the install\.sh that belongs to the archive"):
        release.parse_release(spelled(format=2))


def test_a_list_of_hashes_reads_back_in_its_order() -> None:
    listed = [("b.whl", "1" * 64), ("a.whl", "2" * 64)]
    assert list(release.parse_sums(release.sums(listed)).items()) == listed


BAD_SUMS = {
    "a path": b"1" * 64 + b"  ../x\n",
    "a name that begins with a dot": b"1" * 64 + b"  .x\n",
    "a name that is an option": b"1" * 64 + b"  -x\n",
    "one space": b"1" * 64 + b" x\n",
    "binary mode": b"1" * 64 + b" *x\n",
    "an upper-case hash": b"A" * 64 + b"  x\n",
    "a name twice": (b"1" * 64 + b"  x\n") * 2,
    "no end of line": b"1" * 64 + b"  x",
    "a carriage return": b"1" * 64 + b"  x\r\n",
    "another line separator": b"1" * 64 + b"  x\x0b" + b"1" * 64 + b"  y\n",
    "no ASCII": b"1" * 64 + b"  \xc3\xa9\n",
    "nothing": b"",
    "too much": (b"1" * 64 + b"  x\n") * 4096,
}


@pytest.mark.parametrize("data", BAD_SUMS.values(), ids=BAD_SUMS.keys())
def test_a_list_of_hashes_with_anything_else_in_it_is_refused(data: bytes) -> None:
    with pytest.raises(BadRelease):
        release.parse_sums(data)


@pytest.mark.parametrize("name", ["a b", "a/b", "", "x" * 201, "a\n"])
def test_a_name_that_could_not_be_read_back_is_not_written(name: str) -> None:
    with pytest.raises(BadRelease):
        release.sums([(name, "1" * 64)])


def test_a_manifest_lists_exactly_the_members_in_their_order() -> None:
    listed = [(name, "1" * 64) for name in release.LISTED]
    assert tuple(release.parse_manifest(release.sums(listed))) == release.LISTED
    for other in (listed[:2], [*listed, ("more", "1" * 64)], list(reversed(listed))):
        with pytest.raises(BadRelease):
            release.parse_manifest(release.sums(other))


def test_the_latest_archive_is_one_line() -> None:
    line = release.sums([(GOOD.archive_name, "1" * 64)])
    assert release.parse_latest(line) == ("1" * 64, GOOD.archive_name)
    for other in (line * 2, release.sums([("kernel", "1" * 64)]), b""):
        with pytest.raises(BadRelease):
            release.parse_latest(other)
