"""install.sh before anything is unpacked: cut off anywhere, odd options, spoiled releases."""

import hashlib
import os
import pathlib
import stat
import subprocess
from collections.abc import Callable, Iterator

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519

from installer import release as release_format
from tests.support import installing, small_releases

SCRIPT = small_releases.ROOT / "installer" / "install.sh"
TOKEN = "enj_" + "a" * 40
VERIFIERS = ("openssl", "python")


@pytest.fixture(scope="module")
def key() -> ed25519.Ed25519PrivateKey:
    return small_releases.make_key()


@pytest.fixture(scope="module")
def place() -> Iterator[pathlib.Path]:
    with installing.open_folder() as folder:
        yield folder


@pytest.fixture(scope="module")
def small(place: pathlib.Path, key: ed25519.Ed25519PrivateKey) -> small_releases.Small:
    return small_releases.make(place / "release", key=key)


def attempt(
    small: small_releases.Small, place: pathlib.Path, *options: str, verifier: str = "openssl"
) -> installing.Ended:
    """A dry run of a plain user's installation, which goes as far as the Python half."""
    return installing.run(
        ["sh", small.install_sh, "--role", "worker", "--prefix", place / "own" / "e", "--yes",
         "--dry-run", *options],
        environment={"ENLIST_VERIFY_WITH": verifier},
    )  # fmt: skip


# --- cut off --------------------------------------------------------------------------------


def cuts() -> list[int]:
    """Every line's end, and each byte of the last lines, where the work begins."""
    content = SCRIPT.read_bytes()
    ends = [number for number, byte in enumerate(content) if byte == ord("\n")]
    tail = range(len(content) - 60, len(content) - 1)
    # One line in seven is enough for the middle: between two of them nothing is ever complete.
    return sorted({*ends[::7], *tail})


def test_a_script_cut_off_anywhere_does_nothing(tmp_path: pathlib.Path) -> None:
    content = SCRIPT.read_bytes()
    # Whatever a cut script would start is found here first, and leaves a trace.
    programs = tmp_path / "programs"
    programs.mkdir()
    trace = tmp_path / "trace"
    for name in ("id", "uname", "mktemp", "tar", "curl", "python3", "rm", "mkdir", "sudo", "date"):
        program = programs / name
        program.write_text(f"#!/bin/sh\necho {name} >>{trace}\nexit 1\n")
        program.chmod(0o755)
    for cut in cuts():
        done = subprocess.run(
            ["dash", "-s", "--", "--role", "worker", "--from", "/nowhere"],
            input=content[:cut],
            capture_output=True,
            timeout=20,
            check=False,
            env={"PATH": f"{programs}:/usr/bin:/bin"},
            cwd=tmp_path,
        )
        assert not trace.exists(), f"cut at byte {cut}: {trace.read_text()}"
        assert done.stdout == b"", f"cut at byte {cut}"
        # Said is at most what the shell says of a script that ends too early.
        assert b"enlist:" not in done.stderr or b"--role worker or" in done.stderr, f"byte {cut}"


def test_the_traces_would_show_what_a_whole_script_starts(tmp_path: pathlib.Path) -> None:
    trace = tmp_path / "trace"
    program = tmp_path / "uname"
    program.write_text(f"#!/bin/sh\necho uname >>{trace}\nexit 1\n")
    program.chmod(0o755)
    subprocess.run(
        ["dash", "-s", "--", "--role", "worker", "--from", "/nowhere"],
        input=SCRIPT.read_bytes(),
        capture_output=True,
        timeout=20,
        check=False,
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
    )
    assert trace.read_text() != ""


def test_the_last_line_calls_main_and_nothing_before_it_does_anything() -> None:
    lines = SCRIPT.read_text().rstrip("\n").split("\n")
    assert lines[-1] == 'main "$@"'
    inside = False
    for line in lines[:-1]:
        if line.endswith("() {") or "() { #" in line:
            inside = True
        elif line == "}":
            inside = False
        elif not inside:
            assert (
                line == ""
                or line[0] == "#"
                or line.split("=")[0].isupper()
                or (line.split("=")[0].replace("_", "").isupper())
            ), line


# --- options --------------------------------------------------------------------------------

MISUSES = {
    "no role": ([], "--role worker or --role platform"),
    "an unknown role": (["--role", "king"], "not 'king'"),
    "an unknown option": (["--role", "worker", "--rolle"], "does not know '--rolle'"),
    "an option without its value": (["--role"], "--role needs a value"),
    "a token as an argument": (["--role", "worker", TOKEN], "--join-token-file"),
    "a token as the value of an option": (
        ["--role", "worker", "--join-token-file", TOKEN],
        "where every process can read it",
    ),
    "a hash that is none": (["--role", "worker", "--sha256", "12"], "64 hex digits"),
    "a pin that is none": (["--role", "worker", "--pin", "1234"], "sha256:HEX"),
    "a token file that is not there": (
        ["--role", "worker", "--join-token-file", "/nowhere/token"],
        "/nowhere/token cannot be read",
    ),
    "a token for a Platform": (
        ["--role", "platform", "--join-token-file", "/dev/null"],
        "is for --role worker",
    ),
    "a key that is not there": (
        ["--role", "worker", "--release-key", "/nowhere/key"],
        "/nowhere/key cannot be read",
    ),
    "a prefix with a blank": (["--role", "worker", "--prefix", "/a b"], "no blanks"),
    "a version that is a path": (["--role", "worker", "--version", "../1"], "form 1.2.3"),
    "plain http": (["--role", "worker", "--from", "http://here"], "an https address"),
    "a folder that is not there": (["--role", "worker", "--from", "/nowhere"], "/nowhere is no"),
}


@pytest.mark.parametrize("what", MISUSES)
def test_misuse_is_told_and_nothing_is_done(
    what: str, small: small_releases.Small, place: pathlib.Path
) -> None:
    options, said = MISUSES[what]
    prefix = [] if "--prefix" in options else ["--prefix", str(place / "own" / "misused")]
    done = installing.run(["sh", small.install_sh, *prefix, *options])
    assert done.code == 2, done
    assert said in done.err
    assert TOKEN not in done.err
    assert not (place / "own" / "misused").exists()


def test_stdin_that_carries_the_script_carries_no_token(small: small_releases.Small) -> None:
    done = installing.run(
        ["sh", "-s", "--", "--role", "worker", "--prefix", "/nowhere", "--join-token-file", "-"],
        stdin=small.install_sh.read_bytes(),
    )
    assert done.code == 2
    assert "so it cannot carry the token" in done.err


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to become a user without any rights")
def test_a_plain_user_is_told_at_once_what_needs_root(
    small: small_releases.Small, place: pathlib.Path
) -> None:
    tools = place / "tools-without-sudo"
    tools.mkdir(exist_ok=True)
    for name in ("uname", "id", "tr", "sed", "cut", "date", "cat"):
        link = tools / name
        if not link.exists():
            link.symlink_to(f"/usr/bin/{name}")
    done = installing.run(
        ["/bin/sh", small.install_sh, "--role", "worker"], environment={"PATH": str(tools)}
    )
    assert done.code == 2
    assert "Root is needed" in done.err
    assert "--prefix DIR" in done.err


# --- what is believed ------------------------------------------------------------------------


@pytest.mark.parametrize("verifier", VERIFIERS)
def test_a_release_signed_by_the_key_in_the_script_is_believed(
    verifier: str, small: small_releases.Small, place: pathlib.Path
) -> None:
    done = attempt(small, place, verifier=verifier)
    assert done.code == 0, done
    assert f"would put the release {small.release.id}" in done.out
    assert not (place / "own" / "e").exists()


def spoil(
    small: small_releases.Small,
    target: pathlib.Path,
    change: Callable[[dict[str, bytes]], dict[str, bytes]],
) -> pathlib.Path:
    """An archive with something changed, named by a folder that vouches for its new hash."""
    target.mkdir(parents=True, exist_ok=True)
    target.chmod(0o755)
    content = small_releases.tar_of(change(small_releases.members_of(small.archive)))
    (target / small.archive.name).write_bytes(content)
    (target / f"worker-{small.release.arch}").write_bytes(
        release_format.sums([(small.archive.name, hashlib.sha256(content).hexdigest())])
    )
    return target


def flipped(data: bytes, at: int = -1) -> bytes:
    changed = bytearray(data)
    changed[at] ^= 1
    return bytes(changed)


SPOILED: dict[str, Callable[[dict[str, bytes]], dict[str, bytes]]] = {
    "another payload": lambda all_: {**all_, "payload.tar.xz": flipped(all_["payload.tar.xz"])},
    "another install.sh": lambda all_: {**all_, "install.sh": all_["install.sh"] + b"#\n"},
    "another release.json": lambda all_: {
        **all_, "release.json": all_["release.json"].replace(b"0.1.0", b"9.1.0")
    },
    "another manifest": lambda all_: {
        **all_, "manifest": all_["manifest"].replace(b"0", b"1", 1)
    },
    "a manifest with one more line": lambda all_: {
        **all_, "manifest": all_["manifest"] + b"0" * 64 + b"  more\n"
    },
    "an empty manifest": lambda all_: {**all_, "manifest": b""},
    "a signature with one bit changed": lambda all_: {
        **all_, "manifest.sig": flipped(all_["manifest.sig"])
    },
    "a signature with its first bit changed": lambda all_: {
        **all_, "manifest.sig": flipped(all_["manifest.sig"], 0)
    },
    "a signature of zeros": lambda all_: {**all_, "manifest.sig": bytes(64)},
    "an empty signature": lambda all_: {**all_, "manifest.sig": b""},
    "a signature that is too long": lambda all_: {
        **all_, "manifest.sig": all_["manifest.sig"] + b"\0"
    },
    "a signature whose second half is too large": lambda all_: {
        **all_, "manifest.sig": grown(all_["manifest.sig"])
    },
    "a member more": lambda all_: {**all_, "more": b"x"},
    "a member less": lambda all_: {
        name: data for name, data in all_.items() if name != "install.sh"
    },
    "another order": lambda all_: dict(reversed(all_.items())),
}  # fmt: skip


def grown(signature: bytes) -> bytes:
    """The same signature with the order of the group added: equal to a lax verifier."""
    order = 2**252 + 27742317777372353535851937790883648493
    number = int.from_bytes(signature[32:], "little") + order
    return signature[:32] + number.to_bytes(32, "little")


@pytest.mark.parametrize("verifier", VERIFIERS)
@pytest.mark.parametrize("what", SPOILED)
def test_a_spoiled_release_is_refused(
    what: str, verifier: str, small: small_releases.Small, place: pathlib.Path
) -> None:
    folder = spoil(small, place / "spoiled" / what.replace(" ", "-"), SPOILED[what])
    done = attempt(small, place, "--from", str(folder), verifier=verifier)
    assert done.code == 3, done
    assert "would" not in done.out


@pytest.mark.parametrize("verifier", VERIFIERS)
def test_a_release_signed_by_another_key_is_refused(
    verifier: str, small: small_releases.Small, place: pathlib.Path
) -> None:
    other = small_releases.make(place / f"other-{verifier}", key=small_releases.make_key())
    done = attempt(small, place, "--from", str(other.folder), verifier=verifier)
    assert done.code == 3
    assert "not signed by the release key" in done.err
    named = attempt(
        small, place, "--from", str(other.folder), "--release-key", str(other.public_key),
        verifier=verifier,
    )  # fmt: skip
    assert named.code == 0, named


def test_an_archive_with_another_hash_than_asked_for_is_refused(
    small: small_releases.Small, place: pathlib.Path
) -> None:
    done = attempt(small, place, "--sha256", "0" * 64)
    assert done.code == 3
    assert "not the one that was asked for" in done.err


def test_a_script_without_a_key_believes_nothing(
    small: small_releases.Small, place: pathlib.Path
) -> None:
    unfilled = place / "unfilled"
    unfilled.mkdir(exist_ok=True)
    (unfilled / "install.sh").write_bytes(SCRIPT.read_bytes())
    options = ["--role", "worker", "--prefix", str(place / "own" / "e"), "--dry-run"]
    from_ = ["--from", str(small.folder)]
    done = installing.run(["sh", unfilled / "install.sh", *options, *from_])
    assert done.code == 6
    assert "--release-key FILE" in done.err


def test_without_openssl_and_without_python_a_release_is_refused(
    small: small_releases.Small, place: pathlib.Path
) -> None:
    calls = place / "calls.sh"
    script = small.install_sh.read_text()
    calls.write_text(
        script.rsplit("\n", 2)[0] + '\nWORK=$1 PYTHON=""\nENLIST_VERIFY_WITH=python\n'
        "verify_signature /dev/null /dev/null\n"
    )
    done = installing.run(["sh", calls, place])
    assert done.code == 6
    assert "refused" in done.err


# --- surroundings -----------------------------------------------------------------------------


def test_files_in_use_are_readable_by_nobody_else(
    small: small_releases.Small, place: pathlib.Path
) -> None:
    scratch = place / "own" / "scratch"
    scratch.mkdir(exist_ok=True)
    scratch.chmod(0o777)
    seen = place / "own" / "seen"
    # A python that notes the mode of the work folder, then is the real one.
    spy = place / "own" / "python-spy"
    spy.write_text(
        f"#!/bin/sh\nstat -c %a {scratch}/enlist-install.* >>{seen}\n"
        f'exec {small_releases.SYSTEM_PYTHON} "$@"\n'
    )
    spy.chmod(0o755)
    done = installing.run(
        ["sh", small.install_sh, "--role", "worker", "--prefix", place / "own" / "e", "--dry-run"],
        environment={"TMPDIR": str(scratch), "ENLIST_PYTHON": str(spy)},
        umask=0,
    )
    assert done.code == 0, done
    assert {line for line in seen.read_text().split() if line.isdigit()} == {"700"}
    assert list(scratch.iterdir()) == []
    assert stat.S_IMODE(scratch.stat().st_mode) == 0o777
