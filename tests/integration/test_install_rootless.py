"""A plain user's installation from first to last: laid out, used, updated, joined, removed."""

import fcntl
import hashlib
import json
import os
import pathlib
import stat
from collections.abc import Iterator

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519

from tests.support import installing, small_releases

# What the small command does: says what it was given, and what its standard input hashes to.
SAYS = (
    "import hashlib, os; print('ran', *sys.argv[1:], 'with',"
    " hashlib.sha256(sys.stdin.buffer.read()).hexdigest() if 'join' in sys.argv else 'nothing',"
    " *sorted(os.environ), file=sys.stderr)"
)
TOKEN = "enj_" + "b" * 60


@pytest.fixture(scope="module")
def key() -> ed25519.Ed25519PrivateKey:
    return small_releases.make_key()


@pytest.fixture(scope="module")
def place() -> Iterator[pathlib.Path]:
    with installing.open_folder() as folder:
        yield folder


@pytest.fixture(scope="module")
def first(place: pathlib.Path, key: ed25519.Ed25519PrivateKey) -> small_releases.Small:
    return small_releases.make(place / "first", key=key, body=SAYS)


@pytest.fixture(scope="module")
def second(place: pathlib.Path, key: ed25519.Ed25519PrivateKey) -> small_releases.Small:
    return small_releases.make(place / "second", key=key, version="0.2.0", body=SAYS)


@pytest.fixture
def prefix(place: pathlib.Path, request: pytest.FixtureRequest) -> pathlib.Path:
    """A prefix of this test's own, not there yet."""
    name = hashlib.sha256(request.node.name.encode()).hexdigest()[:8]
    return place / "own" / name / "e"


def install(
    small: small_releases.Small, prefix: pathlib.Path, *options: str, **how: object
) -> installing.Ended:
    command = ["sh", small.install_sh, "--role", "worker", "--prefix", prefix, "--yes", *options]
    return installing.run(command, **how)  # type: ignore[arg-type]


def remove(prefix: pathlib.Path, small: small_releases.Small) -> installing.Ended:
    return install(small, prefix, "--uninstall")


def receipt(prefix: pathlib.Path) -> dict[str, object]:
    found: dict[str, object] = json.loads((prefix / "worker" / "receipt.json").read_text())
    return found


def current(prefix: pathlib.Path) -> str:
    return (prefix / "worker" / "current").readlink().name


def test_what_is_made_is_in_the_receipt_and_runs(
    first: small_releases.Small, prefix: pathlib.Path
) -> None:
    done = install(first, prefix)
    assert done.code == 0, done
    assert "Seconds: packages" in done.err
    assert "Version 0.1.0, made 2026-01-31T12:00:00Z" in done.err
    made = receipt(prefix)
    assert made["release"] == first.release.id == current(prefix)
    assert (made["role"], made["version"], made["units"]) == ("worker", "0.1.0", [])
    listed = {str(path) for path in [*made["files"], *made["folders"]]}  # type: ignore[misc]
    for path in prefix.parent.rglob("*"):
        above = [str(path), *map(str, path.parents)]
        assert any(one in listed for one in above), path
    ran = installing.run([prefix / "bin" / "enlist", "--version"])
    assert (ran.code, ran.out) == (0, "enlist 0.1.0\n")


def test_a_plain_user_is_told_what_starts_it_and_what_needs_root(
    first: small_releases.Small, prefix: pathlib.Path
) -> None:
    done = install(first, prefix)
    assert f"It runs by: {prefix}/bin/enlist agent" in done.err, done
    assert "since it needs root: updates ordered by the Platform, the mesh" in done.err


def test_a_release_is_an_environment_of_its_own(
    first: small_releases.Small, prefix: pathlib.Path
) -> None:
    assert install(first, prefix).code == 0
    release = prefix / "worker" / "releases" / first.release.id
    python = release / "bin" / "python"
    said = installing.run(
        [
            python,
            "-I",
            "-c",
            "import small_thing, small_more, sys; print(sys.prefix, len(sys.path))",
        ]
    )
    assert said.out.split()[0] == str(release), said
    files = json.loads((release / "files.json").read_text())["files"]
    for one in files:
        path = release / one["path"]
        assert hashlib.sha256(path.read_bytes()).hexdigest() == one["sha256"]
        assert f"{stat.S_IMODE(path.stat().st_mode):04o}" == one["mode"]
    compiled = list(release.rglob("__pycache__/*.pyc"))
    sources = list(release.rglob("*.py"))
    assert len(compiled) == len(sources) > 15


def test_the_same_command_again_changes_nothing(
    first: small_releases.Small, prefix: pathlib.Path
) -> None:
    assert install(first, prefix).code == 0
    before = {path: path.lstat().st_ino for path in prefix.parent.rglob("*") if path.is_file()}
    assert install(first, prefix).code == 0
    after = {path: path.lstat().st_ino for path in prefix.parent.rglob("*") if path.is_file()}
    releases = prefix / "worker" / "releases"
    assert before.keys() == after.keys()
    assert {path for path in after if after[path] != before[path]}.isdisjoint(releases.rglob("*"))


def test_a_damaged_release_is_laid_out_anew(
    first: small_releases.Small, prefix: pathlib.Path
) -> None:
    assert install(first, prefix).code == 0
    release = prefix / "worker" / "releases" / first.release.id
    (release / "bin" / "enlist").unlink()
    next(release.rglob("command.py")).write_text("broken\n")
    assert install(first, prefix).code == 0
    assert installing.run([prefix / "bin" / "enlist", "--version"]).out == "enlist 0.1.0\n"
    assert sorted(path.name for path in release.parent.iterdir()) == [first.release.id]


def test_an_update_keeps_the_former_release_and_its_data(
    first: small_releases.Small, second: small_releases.Small, prefix: pathlib.Path
) -> None:
    assert install(first, prefix).code == 0
    data = prefix / "data" / "worker"
    (data / "agent.json").write_text("{}")
    done = install(second, prefix)
    assert done.code == 0, done
    assert current(prefix) == second.release.id
    assert (prefix / "worker" / "previous").readlink().name == first.release.id
    assert receipt(prefix)["version"] == "0.2.0"
    assert (data / "agent.json").read_text() == "{}"
    assert installing.run([prefix / "bin" / "enlist", "--version"]).out == "enlist 0.2.0\n"


def test_an_older_release_is_refused_unless_it_is_named(
    first: small_releases.Small, second: small_releases.Small, prefix: pathlib.Path
) -> None:
    assert install(second, prefix).code == 0
    refused = install(first, prefix)
    assert refused.code == 4
    assert "--version 0.1.0" in refused.err
    assert current(prefix) == second.release.id
    assert install(first, prefix, "--version", "0.1.0").code == 0
    assert current(prefix) == first.release.id


def test_a_release_that_does_not_run_is_not_put_in_use(
    first: small_releases.Small,
    prefix: pathlib.Path,
    place: pathlib.Path,
    key: ed25519.Ed25519PrivateKey,
) -> None:
    broken = small_releases.make(
        place / "broken", key=key, version="0.3.0", more={"operator_cli/main.py": b"import gone\n"}
    )
    assert install(first, prefix).code == 0
    done = install(broken, prefix)
    assert done.code == 3
    assert "does not run on this machine" in done.err
    assert current(prefix) == first.release.id
    assert receipt(prefix)["release"] == first.release.id


def test_what_a_release_says_commands_no_terminal(
    prefix: pathlib.Path, place: pathlib.Path, key: ed25519.Ed25519PrivateKey
) -> None:
    body = b"import sys\nsys.exit('\\x1b]0;title\\x07 and \\x9b31m')\n"
    loud = small_releases.make(place / "loud", key=key, more={"operator_cli/main.py": body})
    done = install(loud, prefix)
    assert done.code == 3, done
    assert "?]0;title? and ?31m" in done.err


def test_the_key_of_the_first_installation_is_kept(
    first: small_releases.Small, prefix: pathlib.Path, place: pathlib.Path
) -> None:
    assert install(first, prefix).code == 0
    other = small_releases.make(place / "other", key=small_releases.make_key(), version="0.4.0")
    refused = install(other, prefix)
    assert refused.code == 6
    assert "signed by another key" in refused.err
    assert current(prefix) == first.release.id
    meant = install(other, prefix, "--release-key", str(other.public_key))
    assert meant.code == 0, meant
    assert (prefix / "worker" / "release.pub").read_bytes() == other.public_key.read_bytes()


@pytest.mark.parametrize("way", ["a file", "standard input"])
def test_the_token_goes_to_the_joins_standard_input_alone(
    way: str, first: small_releases.Small, prefix: pathlib.Path
) -> None:
    token = prefix.parent.parent / "token"
    token.write_text(TOKEN + "\n")
    token.chmod(0o644)
    source, stdin = (str(token), b"") if way == "a file" else ("-", TOKEN.encode())
    done = install(
        first, prefix, "--join-token-file", source, "--", "--label", "place=here",
        stdin=stdin, environment={"SECRET_OF_THE_CALLER": "1"},
    )  # fmt: skip
    assert done.code == 0, done
    assert f"with {hashlib.sha256(TOKEN.encode()).hexdigest()}" in done.err
    assert "worker join - --label place=here" in done.err
    assert TOKEN not in done.err + done.out
    assert "SECRET_OF_THE_CALLER" not in done.err
    for path in prefix.rglob("*"):
        if path.is_file() and not path.is_symlink():
            assert TOKEN.encode() not in path.read_bytes(), path


def test_a_join_that_fails_gives_its_exit_code_and_stays_installed(
    prefix: pathlib.Path, place: pathlib.Path, key: ed25519.Ed25519PrivateKey
) -> None:
    small = small_releases.make(place / "failing", key=key, body="sys.exit(75)")
    done = install(small, prefix, "--join-token-file", "-", stdin=TOKEN.encode())
    assert done.code == 75
    assert "Installed, not joined" in done.err
    assert current(prefix) == small.release.id


def test_an_empty_token_file_is_told_before_anything_is_made(
    first: small_releases.Small, prefix: pathlib.Path
) -> None:
    done = install(first, prefix, "--join-token-file", "/dev/null")
    assert done.code == 2
    assert "no join token in /dev/null" in done.err
    assert not prefix.exists()


ODD = {
    "umask 000": {"umask": 0o000},
    "umask 077": {"umask": 0o077},
    "HOME=/": {"environment": {"HOME": "/"}},
    "a HOME that is not there": {"environment": {"HOME": ""}},
    "a relative XDG_STATE_HOME": {"environment": {"XDG_STATE_HOME": "here"}},
    "a folder that may not be entered": {"folder": pathlib.Path("/proc/1")},
    "PYTHONPATH and PYTHONHOME of the caller": {
        "environment": {"PYTHONPATH": "/nowhere", "PYTHONHOME": "/nowhere"}
    },
    "another language": {"environment": {"LC_ALL": "de_DE.UTF-8", "LANG": "tr_TR.UTF-8"}},
    "an IFS of the caller": {"environment": {"IFS": "e"}},
}


@pytest.mark.parametrize("what", ODD)
def test_it_is_the_same_in_odd_surroundings(
    what: str, first: small_releases.Small, prefix: pathlib.Path
) -> None:
    done = install(first, prefix, **ODD[what])  # type: ignore[arg-type]
    assert done.code == 0, done
    for path in prefix.rglob("*"):
        if path.is_symlink():
            continue
        mode = stat.S_IMODE(path.stat().st_mode)
        private = path == prefix / "data" / "worker"
        assert mode & 0o077 == 0 if private else mode & 0o022 == 0, f"{path} {mode:o}"
        assert private or mode & 0o044 == 0o044, f"{path} {mode:o}"
    assert remove(prefix, first).code == 0
    assert not prefix.exists()


def test_with_a_home_data_and_command_stand_there(
    first: small_releases.Small, prefix: pathlib.Path
) -> None:
    home = prefix.parent / "home"
    environment = {"HOME": str(home)}
    assert install(first, prefix, environment=environment).code == 0
    assert (home / ".local" / "bin" / "enlist").readlink() == (
        prefix / "worker" / "current" / "bin" / "enlist"
    )
    assert (home / ".local" / "state" / "enlist" / "worker").is_dir()
    # Removal finds them by the receipt, whatever HOME is then.
    assert remove(prefix, first).code == 0
    assert not home.exists()
    assert not prefix.exists()


def test_a_dry_run_of_roots_installation_needs_no_root(first: small_releases.Small) -> None:
    done = installing.run(["sh", first.install_sh, "--role", "worker", "--dry-run"])
    assert done.code == 0, done
    release = first.release.id
    assert "would make the account enlist-worker" in done.out
    assert f"would put the release {release} into /opt/enlist/worker/releases/" in done.out
    assert "would put units into /etc/systemd/system" in done.out


def test_another_command_of_the_name_is_left_and_told(
    first: small_releases.Small, prefix: pathlib.Path
) -> None:
    assert install(first, prefix).code == 0
    link = prefix / "bin" / "enlist"
    link.unlink()
    link.write_text("somebody else's\n")
    done = install(first, prefix)
    assert done.code == 0
    assert f"{link} is another's, and left" in done.err
    assert link.read_text() == "somebody else's\n"


# --- removal --------------------------------------------------------------------------------


def test_removal_leaves_nothing_and_may_be_repeated(
    first: small_releases.Small, second: small_releases.Small, prefix: pathlib.Path
) -> None:
    assert install(first, prefix).code == 0
    assert install(second, prefix).code == 0
    (prefix / "data" / "worker" / "identity").mkdir()
    root = prefix / "worker"
    # What a killed update leaves, made by the user whose installation it is.
    left = [root / ".incoming-ab12" / "deep", root / "releases" / ".making-x" / "deep"]
    assert installing.run(["mkdir", "-p", *left]).code == 0
    assert installing.run(["ln", "-s", "releases/x", root / ".tmp-current"]).code == 0
    assert installing.run(["touch", root / ".tmp-receipt.json-0123abcd"]).code == 0
    for _ in range(2):
        done = remove(prefix, first)
        assert done.code == 0, done
        assert installing.files_below(prefix.parent) == []


def test_the_script_of_the_release_removes_itself(
    first: small_releases.Small, prefix: pathlib.Path
) -> None:
    assert install(first, prefix).code == 0
    script = prefix / "worker" / "current" / "install.sh"
    command = ["sh", str(script), "--role", "worker", "--prefix", str(prefix), "--uninstall"]
    assert installing.run([*command, "--yes"]).code == 0
    assert installing.files_below(prefix.parent) == []


PIECES = {
    "the receipt": "worker/receipt.json",
    "the link in use": "worker/current",
    "the releases": "worker/releases",
    "the uninstaller": "worker/uninstaller",
    "the data": "data",
    "the command": "bin",
    "the release key": "worker/release.pub",
}


@pytest.mark.parametrize("what", PIECES)
def test_removal_with_a_piece_missing(
    what: str, first: small_releases.Small, prefix: pathlib.Path
) -> None:
    assert install(first, prefix).code == 0
    gone = prefix / PIECES[what]
    gone.rename(prefix.parent.parent / f"gone-{prefix.parent.name}")
    done = remove(prefix, first)
    assert done.code == 0, done
    # Without the receipt nothing says that the folders above were made by us.
    left = [path for path in installing.files_below(prefix.parent) if what != "the receipt"]
    assert left == []


def test_a_receipt_that_cannot_be_read_stops_an_installation_and_no_removal(
    first: small_releases.Small, prefix: pathlib.Path
) -> None:
    assert install(first, prefix).code == 0
    (prefix / "worker" / "receipt.json").write_text("{")
    done = install(first, prefix)
    assert done.code == 6
    assert "move it away" in done.err
    done = remove(prefix, first)
    assert done.code == 0, done
    assert "Removing what has our names" in done.err
    assert not (prefix / "worker").exists()


def test_what_is_not_ours_stays(first: small_releases.Small, prefix: pathlib.Path) -> None:
    assert install(first, prefix).code == 0
    others = prefix / "worker" / "notes.txt"
    others.write_text("mine\n")
    link = prefix / "bin" / "enlist"
    link.unlink()
    link.write_text("somebody else's\n")
    done = remove(prefix, first)
    assert done.code == 6
    assert "is not Enlist's" in done.err
    assert others.read_text() == "mine\n"
    assert link.read_text() == "somebody else's\n"


def test_a_dry_removal_says_what_it_would_do(
    first: small_releases.Small, prefix: pathlib.Path
) -> None:
    assert install(first, prefix).code == 0
    before = installing.files_below(prefix)
    done = install(first, prefix, "--uninstall", "--dry-run")
    assert done.code == 0
    assert f"would remove {prefix}/worker" in done.out
    assert installing.files_below(prefix) == before


def test_a_joined_worker_tells_the_platform_and_goes_on_when_it_cannot(
    prefix: pathlib.Path, place: pathlib.Path, key: ed25519.Ed25519PrivateKey
) -> None:
    body = "print('ran', *sys.argv[1:], file=sys.stderr); sys.exit(75)"
    small = small_releases.make(place / "unreachable", key=key, body=body)
    assert install(small, prefix).code == 0
    (prefix / "data" / "worker" / "agent.json").write_text("{}")
    done = remove(prefix, small)
    assert done.code == 0, done
    assert "--yes worker leave" in done.err
    assert "The Platform was not told" in done.err
    assert not prefix.exists()


def test_two_at_once_do_not_meet(first: small_releases.Small, prefix: pathlib.Path) -> None:

    assert install(first, prefix).code == 0
    descriptor = os.open(prefix / "worker", os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        done = install(first, prefix)
    finally:
        os.close(descriptor)
    assert done.code == 75
    assert "Another installation" in done.err
