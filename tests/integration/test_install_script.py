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


def cuts(content: bytes) -> list[int]:
    """Every line's end, and each byte of the last lines, where the work begins."""
    ends = [number for number, byte in enumerate(content) if byte == ord("\n")]
    tail = range(len(content) - 60, len(content) - 1)
    # One line in seven is enough for the middle: between two of them nothing is ever complete.
    return sorted({*ends[::7], *tail})


def test_a_script_cut_off_anywhere_does_nothing(tmp_path: pathlib.Path) -> None:
    programs = tmp_path / "programs"
    content = small_releases.script_for_roots(path=f"{programs}:/usr/bin:/bin", uid=0, top="/")
    # Whatever a cut script would start is found here first, and leaves a trace.
    programs.mkdir()
    trace = tmp_path / "trace"
    for name in ("id", "uname", "mktemp", "tar", "curl", "python3", "rm", "mkdir", "sudo", "date"):
        program = programs / name
        program.write_text(f"#!/bin/sh\necho {name} >>{trace}\nexit 1\n")
        program.chmod(0o755)
    for cut in cuts(content):
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
        input=small_releases.script_for_roots(path=f"{tmp_path}:/usr/bin:/bin", uid=0, top="/"),
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
    "a token after =": (["--role", "worker", f"--join-token={TOKEN}"], "every process can read it"),
    "a token after --": (["--role", "worker", "--", TOKEN], "every process can read it"),
    "a token after = after --": (
        ["--role", "worker", "--", f"--label=t={TOKEN}"],
        "every process can read it",
    ),
    "an address with a password": (
        ["--role", "worker", "--from", "https://somebody:hidden@here/x"],
        "no address with a user or a password",
    ),
    "an address with a quote": (
        ["--role", "worker", "--from", 'https://here/"x'],
        "without blanks",
    ),
    "an address with a line end": (
        ["--role", "worker", "--from", "https://here/\noutput=/x"],
        "without blanks",
    ),
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
    assert "hidden" not in done.err
    assert not (place / "own" / "misused").exists()


@pytest.mark.parametrize("spelling", ["--OPTION=", "--OPTION ''"])
@pytest.mark.parametrize(
    "option",
    ["sha256", "pin", "release-key", "version", "join-token-file", "from", "prefix", "data-dir"],
)
def test_an_option_whose_value_is_empty_is_refused_and_not_passed_over(
    option: str, spelling: str, small: small_releases.Small, place: pathlib.Path
) -> None:
    words = [f"--{option}="] if spelling == "--OPTION=" else [f"--{option}", ""]
    done = attempt(small, place, *words)
    assert done.code == 2, done
    assert f"--{option} needs a value" in done.err


def test_a_word_that_only_looks_like_a_token_is_none(
    small: small_releases.Small, place: pathlib.Path
) -> None:
    done = attempt(small, place, "--", "--label", "role=agent_one", "--label=path=/srv/enj_x")
    assert done.code == 0, done


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


def test_another_version_than_the_archive_names_is_refused(
    small: small_releases.Small, place: pathlib.Path
) -> None:
    folder = place / "renamed"
    folder.mkdir(exist_ok=True)
    folder.chmod(0o755)
    newer = small.archive.name.replace("0.1.0", "9.9.9")
    (folder / newer).write_bytes(small.archive.read_bytes())
    done = attempt(small, place, "--from", str(folder / newer))
    assert done.code == 3, done
    assert f"{newer} holds {small.archive.name}: refused" in done.err
    # And so for the version that was asked for, whatever the archive is called.
    (folder / "enlist.tar").write_bytes(small.archive.read_bytes())
    archive = str(folder / "enlist.tar")
    done = attempt(small, place, "--from", archive, "--version", "9.9.9")
    assert done.code == 3, done
    assert "Version 9.9.9 was asked for, and what came is 0.1.0: refused" in done.err
    assert attempt(small, place, "--from", archive, "--version", "0.1.0").code == 0


def as_root(script: pathlib.Path, path: pathlib.Path, top: pathlib.Path) -> pathlib.Path:
    """The script for a root whose programs stand at `path`, and who is whoever runs this test."""
    programs = f"{path}:/usr/bin:/bin"
    content = small_releases.script_for_roots(path=programs, uid=os.getuid(), top=str(top))
    script.write_bytes(content)
    path.mkdir()
    (path / "id").write_text("#!/bin/sh\necho 0\n")
    (path / "id").chmod(0o755)
    return script


UNDER_ROOT = {
    "the prefix": ("e", 0o777),
    "a sticky folder above": ("", 0o1777),
    "the role's folder": ("e/worker", 0o775),
    "the removing code": ("e/worker/uninstaller/installer/command.py", 0o666),
}


@pytest.mark.parametrize("options", [["--uninstall"], ["--from", "/nowhere"]], ids=" ".join)
@pytest.mark.parametrize("what", UNDER_ROOT)
def test_root_runs_and_makes_nothing_where_others_may_write(
    what: str, options: list[str], tmp_path: pathlib.Path
) -> None:
    name, mode = UNDER_ROOT[what]
    if name.endswith(".py") and "--uninstall" not in options:
        return  # an installation runs nothing of it
    place = tmp_path / "place"
    code = place / "e" / "worker" / "uninstaller" / "installer" / "command.py"
    code.parent.mkdir(parents=True)
    trace = tmp_path / "ran"
    code.write_text(f"open({str(trace)!r}, 'w')\ndef main(words):\n    return 0\n")
    (code.parent / "__init__.py").write_text("")
    script = as_root(tmp_path / "install.sh", tmp_path / "programs", place)
    command = ["sh", str(script), "--role", "worker", "--prefix", str(place / "e"), "--yes"]
    (place / name).chmod(mode)
    before = installing.files_below(place)
    done = installing.run([*command, *options], as_root=True)
    assert done.code == 6, done
    assert f"{place / name}".rstrip("/") in done.err
    assert "others than root can put" in done.err
    assert installing.files_below(place) == before
    assert not trace.exists()


def test_root_follows_a_link_to_the_folders_that_hold_its_target(tmp_path: pathlib.Path) -> None:
    place, open_to_all = tmp_path / "place", tmp_path / "place" / "home"
    (open_to_all / "opt").mkdir(parents=True)
    open_to_all.chmod(0o777)
    (place / "e").symlink_to("home/opt")
    script = as_root(tmp_path / "install.sh", tmp_path / "programs", place)
    done = installing.run(
        ["sh", script, "--role", "worker", "--prefix", place / "e", "--yes", "--uninstall"],
        as_root=True,
    )
    assert done.code == 6, done
    assert f"{open_to_all} belongs to" in done.err


def test_root_finds_programs_in_a_fixed_path_and_uses_no_folder_of_others(
    tmp_path: pathlib.Path,
) -> None:
    theirs, place = tmp_path / "theirs", tmp_path / "place"
    scratch = tmp_path / "scratch"
    for folder in (theirs, place, scratch):
        folder.mkdir()
    trace = tmp_path / "ran"
    for name in ("id", "uname", "mktemp", "tar", "curl", "openssl", "sed", "sha256sum"):
        (theirs / name).write_text(f"#!/bin/sh\necho {name} >>{trace}\nexit 1\n")
        (theirs / name).chmod(0o755)
    scratch.chmod(0o777)
    script = as_root(tmp_path / "install.sh", tmp_path / "programs", tmp_path)
    done = installing.run(
        ["/bin/sh", script, "--role", "worker", "--prefix", place / "e", "--from", "/nowhere",
         "--release-key", "/dev/null", "--yes", "--dry-run"],
        environment={"PATH": f"{theirs}:/usr/bin:/bin", "TMPDIR": str(scratch)},
        as_root=True,
    )  # fmt: skip
    assert not trace.exists(), trace.read_text()
    assert "TMPDIR is not root's alone, and not used" in done.err, done


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
