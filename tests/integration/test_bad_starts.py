"""Over a Platform's data a bad start refuses, says what to do, and changes nothing.

What is refused on an empty data directory is in test_serve.py; here a Platform has lived, its
node and its keys are at stake, and afterwards a good start finds them as they were.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import shutil
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping

import pytest

from tests.support import operators, real_platform

pytestmark = pytest.mark.timeout(120)

NOBODY = 65_534
UNCHANGED_BESIDES = ("run", ".lock", "-shm", "-wal")
"""What a start that only looked may leave: its lock, and SQLite's own working files."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Bad:
    """A start that must fail: what was done to the directory, and what the refusal owes."""

    code: int
    words: tuple[str, ...]
    arrange: Callable[[pathlib.Path], None] = lambda _: None
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)


def _write(name: str, content: str, *, mode: int = 0o600) -> Callable[[pathlib.Path], None]:
    def arrange(data_dir: pathlib.Path) -> None:
        (data_dir / name).write_text(content)
        (data_dir / name).chmod(mode)

    return arrange


def _put_a_pipe_in_place_of_the_settings(data_dir: pathlib.Path) -> None:
    os.mkfifo(data_dir / "config.toml", 0o600)


def _put_a_folder_in_place_of_the_lock(data_dir: pathlib.Path) -> None:
    (data_dir / "run" / "host.lock").unlink(missing_ok=True)
    (data_dir / "run" / "host.lock").mkdir()


def _lose_the_key(data_dir: pathlib.Path) -> None:
    (data_dir / "master.key").unlink()


def _open_the_key_to_all(data_dir: pathlib.Path) -> None:
    (data_dir / "master.key").chmod(0o644)


def _age_the_store(data_dir: pathlib.Path) -> None:
    with contextlib.closing(sqlite3.connect(data_dir / "enlist.db")) as database, database:
        database.execute("UPDATE migrations SET version = version + 1000")


def _leave_a_note_for_a_store(data_dir: pathlib.Path) -> None:
    for path in data_dir.glob("enlist.db*"):
        path.unlink()
    (data_dir / "enlist.db").write_bytes(b"This is no database.\n" * 400)
    (data_dir / "enlist.db").chmod(0o600)


BAD = {
    "its master key is missing": Bad(
        arrange=_lose_the_key, code=6, words=("master.key", "missing", "backup")
    ),
    "its master key is another one": Bad(
        arrange=_write("master.key", f"emk_{'7' * 64}\n"),
        code=6,
        words=("master.key", "Put the right file there"),
    ),
    "its master key is no key": Bad(
        arrange=_write("master.key", "not a key\n"), code=6, words=("master.key", "backup")
    ),
    "others can read its master key": Bad(
        arrange=_open_the_key_to_all, code=6, words=("master.key", "0644", "chmod 600")
    ),
    "the master key that is named does not exist": Bad(
        environment={"ENLIST_MASTER_KEY_FILE": "/nowhere/master.key"},
        code=6,
        words=("/nowhere/master.key", "missing"),
    ),
    "its store is of a newer Enlist": Bad(
        arrange=_age_the_store, code=6, words=("newer Enlist", "install Enlist")
    ),
    "its store is no database": Bad(
        arrange=_leave_a_note_for_a_store, code=6, words=("enlist.db",)
    ),
    "a setting in its file is unknown": Bad(
        arrange=_write("config.toml", "[enrollment]\nprot = 8444\n"),
        code=2,
        words=("enrollment.prot", "config.toml", "enrollment.port"),
    ),
    "a section in its file is unknown": Bad(
        arrange=_write("config.toml", "[enrolment]\nport = 8444\n"), code=2, words=("enrolment",)
    ),
    "its settings file is no TOML": Bad(
        arrange=_write("config.toml", "enrollment: {}\n"), code=2, words=("config.toml",)
    ),
    "its settings file is a pipe": Bad(
        arrange=_put_a_pipe_in_place_of_the_settings, code=2, words=("config.toml", "regular file")
    ),
    "its lock is a folder": Bad(
        arrange=_put_a_folder_in_place_of_the_lock, code=2, words=("host.lock",)
    ),
    "a setting in the environment is unknown": Bad(
        environment={"ENLIST_PROBE__INTERVALL_SECONDS": "3"},
        code=2,
        words=("ENLIST_PROBE__INTERVALL_SECONDS", "probe.interval_seconds"),
    ),
    "a setting is out of its bounds": Bad(
        environment={"ENLIST_STORE__BUSY_SECONDS": "0"},
        code=2,
        words=("store.busy_seconds", "0.1"),
    ),
    "a port is below 1024": Bad(
        arguments=("--enrollment-port", "443"),
        code=2,
        words=("enrollment.port", "--enrollment-port", "1024"),
    ),
}


@pytest.fixture(scope="module")
def lived_in(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The data of a stopped Platform that has issued a token."""
    data_dir = tmp_path_factory.mktemp("lived-in") / "platform"
    with real_platform.running(data_dir) as platform, operators.local(platform) as client:
        operators.issue(client, "web-1")
    return data_dir


@pytest.fixture
def data_dir(lived_in: pathlib.Path, tmp_path: pathlib.Path) -> pathlib.Path:
    return shutil.copytree(lived_in, tmp_path / "platform")


def _serve(
    data_dir: pathlib.Path,
    *arguments: str,
    environment: Mapping[str, str] | None = None,
    prefix: tuple[str, ...] = (),
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [
            *(*prefix, *real_platform.ENLIST, "serve", "-o", "json"),
            *("--data-dir", str(data_dir), "--listen", "127.0.0.1:0", *arguments),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=real_platform.clean_environment(environment),
    )


def _check_refused(
    done: "subprocess.CompletedProcess[str]", *, code: int, words: tuple[str, ...]
) -> None:
    assert done.stdout == ""
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    missing = [word for word in words if word not in done.stderr]
    assert missing == [], done.stderr


def _contents(data_dir: pathlib.Path) -> dict[str, tuple[int, object]]:
    """Every file's mode and content; a store by what is in it."""
    found: dict[str, tuple[int, object]] = {}
    for path in sorted(data_dir.rglob("*")):
        name = str(path.relative_to(data_dir))
        if path.is_dir() or name.startswith("run/") or name.endswith(UNCHANGED_BESIDES):
            continue
        info = path.lstat()
        content: object = path.read_bytes() if path.is_file() else None
        if path.name == "enlist.db":
            with (
                contextlib.suppress(sqlite3.DatabaseError),
                contextlib.closing(sqlite3.connect(path)) as database,
            ):
                content = list(database.iterdump())
        found[name] = (info.st_mode, content)
    return found


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD.keys())
def test_a_platform_refuses_to_start_and_changes_nothing_when(
    bad: Bad, data_dir: pathlib.Path
) -> None:
    bad.arrange(data_dir)
    before = _contents(data_dir)
    done = _serve(data_dir, *bad.arguments, environment=bad.environment)
    _check_refused(done, code=bad.code, words=bad.words)
    assert _contents(data_dir) == before


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        yield int(taken.getsockname()[1])


@pytest.mark.parametrize("option", ["--listen", "--enrollment-port", "--gateway-port"])
def test_a_busy_port_is_refused_and_the_data_are_as_they_were(
    option: str, data_dir: pathlib.Path, taken_port: int
) -> None:
    before = _contents(data_dir)
    value = f"127.0.0.1:{taken_port}" if option == "--listen" else str(taken_port)
    others = ("--enrollment-port", "0") if option == "--gateway-port" else ()
    done = _serve(data_dir, *others, option, value)
    _check_refused(done, code=2, words=(str(taken_port), "another port", option))
    assert _contents(data_dir) == before


def _as_nobody() -> tuple[str, ...]:
    """The words that run a program as an account without rights; skips where that cannot be."""
    if os.geteuid() != 0:
        pytest.skip("only root can run a program as another account")
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        pytest.skip("setpriv (util-linux) is missing")
    words = (
        *(setpriv, f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"),
        *("--bounding-set=-all", "--inh-caps=-all"),
    )
    imported = subprocess.run(
        [*words, sys.executable, "-c", "import operator_cli.main"], capture_output=True, check=False
    )
    if imported.returncode != 0:
        pytest.skip("another account cannot read this Python")
    return words


def test_a_data_directory_of_somebody_else_is_refused_and_left_alone(
    data_dir: pathlib.Path,
) -> None:
    """root has made it; another account tries."""
    prefix = _as_nobody()
    for folder in (data_dir.parent, data_dir.parent.parent, data_dir.parent.parent.parent):
        folder.chmod(folder.stat().st_mode | 0o055)
    before = _contents(data_dir)
    done = _serve(data_dir, prefix=prefix)
    _check_refused(done, code=2, words=(str(data_dir), "owner", "--data-dir"))
    assert _contents(data_dir) == before


def test_a_file_in_the_place_of_the_directory_is_refused_and_left_alone(
    tmp_path: pathlib.Path,
) -> None:
    place = tmp_path / "platform"
    place.write_text("mine")
    _check_refused(_serve(place), code=2, words=(str(place), "--data-dir"))
    assert place.read_text() == "mine"


@pytest.mark.parametrize("name", ["notes.txt", "run", "identity"])
def test_a_directory_of_other_things_is_refused_and_left_as_it_is(
    name: str, tmp_path: pathlib.Path
) -> None:
    place = tmp_path / "platform"
    (place / name).mkdir(parents=True)
    (place / "mine").write_text("mine")
    place.chmod(0o755)
    _check_refused(_serve(place), code=2, words=(f"{place} is not empty", "--data-dir"))
    assert sorted(one.name for one in place.iterdir()) == sorted({name, "mine"})
    assert list((place / name).iterdir()) == []
    assert place.stat().st_mode & 0o777 == 0o755


def test_an_empty_directory_and_one_with_settings_alone_are_taken(tmp_path: pathlib.Path) -> None:
    place = tmp_path / "platform"
    place.mkdir(mode=0o755)
    _serve(place, environment={"ENLIST_CRASH_AT": "engine.built"})
    assert place.stat().st_mode & 0o777 == 0o700
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.toml").write_text("[platform]\nenvironment = 'test'\n")
    with real_platform.running(tmp_path / "other") as platform:
        shown = json.loads(platform.enlist("platform", "show", "-o", "json"))
    assert shown["environment"] == "test"


def test_after_all_refusals_a_good_start_finds_everything(data_dir: pathlib.Path) -> None:
    for bad in (BAD["a setting is out of its bounds"], BAD["a port is below 1024"]):
        _serve(data_dir, *bad.arguments, environment=bad.environment)
    key = (data_dir / "master.key").read_bytes()
    (data_dir / "master.key").write_text(f"emk_{'7' * 64}\n")
    assert _serve(data_dir).returncode == 6
    (data_dir / "master.key").write_bytes(key)
    with real_platform.running(data_dir) as platform, operators.local(platform) as client:
        assert [one["node_id"] for one in operators.enrollments(client)] == ["web-1"]
        assert operators.is_intact(platform)


def test_a_second_platform_in_the_directory_is_refused_and_the_first_works_on(
    data_dir: pathlib.Path,
) -> None:
    with real_platform.running(data_dir) as platform, operators.local(platform) as client:
        _check_refused(_serve(data_dir), code=4, words=(str(data_dir), "Stop it first"))
        operators.issue(client, "web-2")
