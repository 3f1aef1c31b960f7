"""`enlist backup`, the SDK and the route against a real Platform: keys, permissions, exit codes."""

import hashlib
import io
import json
import os
import pathlib
import pty
import subprocess
import threading
from collections.abc import Iterator

import httpx
import pytest

import enlist
from enlist import targets
from platform_server.backup import contents
from tests.support import backups, operators, real_platform

WORDS = "correct horse battery staple"


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[real_platform.RealPlatform]:
    folder = tmp_path_factory.mktemp("platform") / "data"
    folder.mkdir(mode=0o700)
    (folder / "config.toml").write_text('[platform]\nenvironment = "prod"\n')
    (folder / "config.local.toml").write_text("[probe]\ninterval_seconds = 20\n")
    with real_platform.running(folder) as running:
        yield running


@pytest.fixture
def pair() -> backups.Pair:
    return backups.new_pair()


def _run(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*real_platform.ENLIST, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=real_platform.clean_environment(),
    )


def _create(platform: real_platform.RealPlatform, file: pathlib.Path, *more: str) -> list[str]:
    return ["--data-dir", str(platform.data_dir), "backup", "create", str(file), *more]


def test_a_backup_says_its_size_counts_and_hash_and_is_private(
    platform: real_platform.RealPlatform, pair: backups.Pair, tmp_path: pathlib.Path
) -> None:
    file = tmp_path / "made.enlist"
    done = _run(*_create(platform, file, "--recipient", pair.recipient, "-o", "json"))
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    content = file.read_bytes()
    assert said["bytes"] == len(content)
    assert said["sha256"] == hashlib.sha256(content).hexdigest()
    assert said["rows"]["trust_keys"] == 1
    assert file.stat().st_mode & 0o777 == 0o600
    verified = json.loads(
        real_platform.run_enlist(
            *("backup", "verify", str(file), "-o", "json"),
            *("--identity-file", str(pair.write(tmp_path))),
        )
    )
    same = ("backup_id", "platform_id", "epoch", "made_at", "rows", "bytes", "schema_version")
    assert {name: verified[name] for name in same} == {name: said[name] for name in same}


def test_no_secret_of_the_platform_stands_in_the_file(
    platform: real_platform.RealPlatform, pair: backups.Pair, tmp_path: pathlib.Path
) -> None:
    file = tmp_path / "made.enlist"
    platform.enlist("backup", "create", str(file), "--recipient", pair.recipient)
    key = (platform.data_dir / "master.key").read_bytes().strip()
    assert key not in file.read_bytes()
    assert b"master" not in file.read_bytes()
    with contents.opened(file, key=pair.key) as pieces:
        kept = [piece for piece in pieces if isinstance(piece, contents.MasterKey)]
    assert f"emk_{kept[0].keys[0].raw.hex()}".encode() == key


def test_it_is_in_the_log_and_among_the_events_and_names_its_recipients(
    platform: real_platform.RealPlatform, pair: backups.Pair, tmp_path: pathlib.Path
) -> None:
    said = json.loads(
        platform.enlist(
            *("backup", "create", str(tmp_path / "made"), "--recipient", pair.recipient),
            *("-o", "json"),
        )
    )
    with operators.local(platform) as client:
        entry = operators.actions(client, action="backup.create")[0]
    assert entry["target"] == said["backup_id"]
    assert entry["details"] == {"recipients": [pair.recipient]}
    assert entry["environment"] == "prod"
    events = json.loads(platform.enlist("events", "-o", "json"))["events"]
    (made,) = [one for one in events if one["subject"] == said["backup_id"]]
    assert made["kind"] == "platform.backup-made"
    assert made["data"]["bytes"] == said["bytes"]


def test_check_counts_judges_and_writes_nothing(
    platform: real_platform.RealPlatform, pair: backups.Pair, tmp_path: pathlib.Path
) -> None:
    file = tmp_path / "made.enlist"
    with operators.local(platform) as client:
        before = len(operators.actions(client, action="backup.create"))
    done = _run(*_create(platform, file, "--recipient", pair.recipient, "--check", "-o", "json"))
    assert done.returncode == 0, done.stderr
    assert "rows in all, to 1 recipient" in json.loads(done.stdout)["changes"][0]["detail"]
    wrong = _run(*_create(platform, file, "--recipient", "age1nobody", "--check"))
    assert wrong.returncode == 2
    assert not file.exists()
    with operators.local(platform) as client:
        assert len(operators.actions(client, action="backup.create")) == before


def test_several_recipients_from_a_file_each_open_it(
    platform: real_platform.RealPlatform, tmp_path: pathlib.Path
) -> None:
    pairs = [backups.new_pair() for _ in range(3)]
    listed = tmp_path / "recipients.txt"
    listed.write_text(f"# who may restore\n{pairs[0].recipient}\n\n{pairs[1].recipient}\n")
    file = tmp_path / "made.enlist"
    platform.enlist(
        *("backup", "create", str(file), "--recipients-file", str(listed)),
        *("--recipient", pairs[2].recipient),
    )
    for pair in pairs:
        assert contents.verify(file, key=pair.key).head.rows["trust_keys"] == 1


def test_a_passphrase_from_a_file_or_stdin_opens_it_and_never_reaches_the_platform(
    platform: real_platform.RealPlatform, tmp_path: pathlib.Path
) -> None:
    file, words = tmp_path / "made.enlist", tmp_path / "words"
    words.write_text(f"{WORDS}\n")
    done = _run(*_create(platform, file, "--passphrase-file", "-"), stdin=WORDS)
    assert done.returncode == 0, done.stderr
    assert WORDS not in done.stdout + done.stderr
    real_platform.run_enlist("backup", "verify", str(file), "--passphrase-file", str(words))
    wrong = _run("backup", "verify", str(file), "--passphrase-file", "-", stdin="wrong")
    assert (wrong.returncode, wrong.stdout) == (7, "")
    assert "passphrase does not open" in wrong.stderr
    with operators.local(platform) as client:
        (recipient,) = operators.actions(client, action="backup.create")[0]["details"]["recipients"]
    assert recipient.startswith("age1")


def test_a_passphrase_as_an_argument_works_and_warns(
    platform: real_platform.RealPlatform, tmp_path: pathlib.Path
) -> None:
    file = tmp_path / "made.enlist"
    done = _run(*_create(platform, file, "--passphrase", WORDS))
    assert done.returncode == 0
    assert "can be read by others" in done.stderr
    done = _run("backup", "verify", str(file), "--passphrase", WORDS)
    assert done.returncode == 0
    assert "can be read by others" in done.stderr


def test_on_a_terminal_the_passphrase_is_asked_for_twice_and_not_echoed(
    platform: real_platform.RealPlatform, tmp_path: pathlib.Path
) -> None:
    file = tmp_path / "made.enlist"
    code, screen = _at_terminal(
        _create(platform, file),
        answers=[(b"Passphrase for the backup: ", WORDS), (b"confirmation: ", WORDS)],
    )
    assert code == 0, screen
    assert WORDS.encode() not in screen
    code, screen = _at_terminal(
        ["backup", "verify", str(file)], answers=[(b"Passphrase of the backup: ", WORDS)]
    )
    assert code == 0, screen
    assert WORDS.encode() not in screen


def _at_terminal(command: list[str], *, answers: list[tuple[bytes, str]]) -> tuple[int, bytes]:
    terminal, theirs = pty.openpty()
    process = subprocess.Popen(
        [*real_platform.ENLIST, *command],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=real_platform.clean_environment(),
        start_new_session=True,
    )
    os.close(theirs)
    watchdog = threading.Timer(60, process.kill)
    watchdog.start()
    screen = b""
    try:
        for question, answer in answers:
            while question not in screen:
                screen += os.read(terminal, 4096)
            os.write(terminal, f"{answer}\n".encode())
        while part := os.read(terminal, 4096):
            screen += part
    except OSError:  # the terminal's last user has gone
        pass
    finally:
        code = process.wait()
        watchdog.cancel()
        os.close(terminal)
    return code, screen


def test_without_a_terminal_and_without_a_key_it_says_which_to_give(
    platform: real_platform.RealPlatform, pair: backups.Pair, tmp_path: pathlib.Path
) -> None:
    file = tmp_path / "made.enlist"
    done = _run(*_create(platform, file))
    assert done.returncode == 2
    assert "--recipient age1" in done.stderr
    both = _run(
        *_create(platform, file, "--recipient", pair.recipient, "--passphrase-file", "-"), stdin="x"
    )
    assert both.returncode == 2
    platform.enlist("backup", "create", str(file), "--recipient", pair.recipient)
    done = _run("backup", "verify", str(file))
    assert done.returncode == 2
    assert "--identity-file" in done.stderr


def test_a_file_that_exists_is_not_replaced_without_being_asked_to(
    platform: real_platform.RealPlatform, pair: backups.Pair, tmp_path: pathlib.Path
) -> None:
    file = tmp_path / "made.enlist"
    file.write_text("precious")
    done = _run(*_create(platform, file, "--recipient", pair.recipient))
    assert done.returncode == 4
    assert "--force" in done.stderr
    assert file.read_text() == "precious"
    assert _run(*_create(platform, file, "--recipient", pair.recipient, "--force")).returncode == 0
    assert _run(*_create(platform, tmp_path, "--recipient", pair.recipient)).returncode == 2
    nowhere = tmp_path / "none" / "made.enlist"
    assert _run(*_create(platform, nowhere, "--recipient", pair.recipient)).returncode == 2


def test_only_who_may_make_backups_makes_one(
    platform: real_platform.RealPlatform, pair: backups.Pair, tmp_path: pathlib.Path
) -> None:
    def token(permission: str) -> pathlib.Path:
        path = tmp_path / permission
        path.write_text(platform.enlist("tokens", "create", "--permission", permission))
        return path

    api = ("--platform", str(platform.said["api"]))
    command = ("backup", "create", str(tmp_path / "made"), "--recipient", pair.recipient)
    refused = _run(*api, "--token-file", str(token("platform.manage")), *command)
    assert (refused.returncode, refused.stdout) == (7, "")
    assert "backup.manage" in refused.stderr
    checked = _run(*api, "--token-file", str(token("nodes.view")), *command, "--check")
    assert checked.returncode == 7
    allowed = _run(*api, "--token-file", str(token("backup.manage")), *command)
    assert allowed.returncode == 0, allowed.stderr


def test_no_platform_and_no_file_have_exit_codes_of_their_own(
    pair: backups.Pair, tmp_path: pathlib.Path
) -> None:
    gone = ("--data-dir", str(tmp_path / "none"), "backup", "create", str(tmp_path / "made"))
    assert _run(*gone, "--recipient", pair.recipient).returncode == 75
    identity = ("--identity-file", str(pair.write(tmp_path)))
    assert _run("backup", "verify", str(tmp_path / "none"), *identity).returncode == 5
    other = tmp_path / "other"
    other.write_bytes(b"SQLite format 3\x00")
    assert _run("backup", "verify", str(other), *identity).returncode == 2
    assert _run("backup", "restore", str(other), *identity).returncode == 2


def test_a_restore_refuses_what_is_not_empty_and_checks_without_a_trace(
    platform: real_platform.RealPlatform, pair: backups.Pair, tmp_path: pathlib.Path
) -> None:
    file, to = tmp_path / "made.enlist", tmp_path / "elsewhere"
    platform.enlist("backup", "create", str(file), "--recipient", pair.recipient)
    identity = ("--identity-file", str(pair.write(tmp_path)))
    restore = ("backup", "restore", str(file), *identity)
    for target in (platform.data_dir, tmp_path):
        refused = _run(*restore, "--data-dir", str(target))
        assert refused.returncode == 4
        assert "not empty" in refused.stderr
    stranger = tmp_path / "stranger"
    stranger.mkdir()
    wrong = ("--identity-file", str(backups.new_pair().write(stranger)))
    assert _run("backup", "restore", str(file), *wrong, "--data-dir", str(to)).returncode == 7
    checked = _run(*restore, "--data-dir", str(to), "--check", "-o", "json")
    assert checked.returncode == 0, checked.stderr
    assert json.loads(checked.stdout)["check"] is True
    assert not to.exists()
    url = ("--database-url", "postgresql://nobody@127.0.0.1:1/none")
    assert _run(*restore, "--data-dir", str(to), *url).returncode == 75
    assert not to.exists()


def test_settings_come_back_and_those_that_are_there_are_kept(
    platform: real_platform.RealPlatform, pair: backups.Pair, tmp_path: pathlib.Path
) -> None:
    file, to = tmp_path / "made.enlist", tmp_path / "elsewhere"
    platform.enlist("backup", "create", str(file), "--recipient", pair.recipient)
    to.mkdir(mode=0o700)
    (to / "config.local.toml").write_text("[probe]\ninterval_seconds = 30\n")
    done = _run(
        *("backup", "restore", str(file), "--identity-file", str(pair.write(tmp_path))),
        *("--data-dir", str(to), "-o", "json"),
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["config_written"] == ["config.toml"]
    assert said["config_kept"] == ["config.local.toml"]
    assert "was kept" in done.stderr
    assert (to / "config.toml").read_text() == '[platform]\nenvironment = "prod"\n'
    assert "30" in (to / "config.local.toml").read_text()
    modes = {one.name: one.stat().st_mode & 0o777 for one in to.iterdir() if one.is_file()}
    assert {modes[name] for name in ("config.toml", "master.key", "enlist.db")} == {0o600}


def test_the_sdk_writes_it_waiting_and_awaited(
    platform: real_platform.RealPlatform, pair: backups.Pair, tmp_path: pathlib.Path
) -> None:
    file = io.BytesIO()
    with enlist.Client(target=targets.local(platform.data_dir)) as client:
        made = client.backup.create(recipients=[pair.recipient], to=file)
        checked = client.backup.check(recipients=[pair.recipient])
        with pytest.raises(enlist.Invalid, match="no recipient"):
            client.backup.create(recipients=["age1x"], to=file)
    path = tmp_path / "made.enlist"
    path.write_bytes(file.getvalue())
    assert contents.verify(path, key=pair.key).head.backup_id == made.backup_id
    assert checked.changes[0].action == "encrypt"


async def test_the_async_sdk_writes_it(
    platform: real_platform.RealPlatform, pair: backups.Pair, tmp_path: pathlib.Path
) -> None:
    file = io.BytesIO()
    async with enlist.AsyncClient(target=targets.local(platform.data_dir)) as client:
        made = await client.backup.create(recipients=[pair.recipient], to=file)
    path = tmp_path / "made.enlist"
    path.write_bytes(file.getvalue())
    assert contents.verify(path, key=pair.key).head.backup_id == made.backup_id


def test_a_reader_that_leaves_makes_room_for_the_next(
    platform: real_platform.RealPlatform, pair: backups.Pair
) -> None:
    body = {"recipients": [pair.recipient]}
    with operators.local(platform) as client:
        with client.stream("POST", "/backup", json=body) as first:
            assert first.status_code == 200
            assert json.loads(first.headers["Enlist-Backup"])["rows"]["trust_keys"] == 1
        answers: list[httpx.Response] = []

        def free() -> bool:
            answers.append(client.post("/backup", json=body))
            return answers[-1].status_code == 200

        operators.wait_until(free, what="the next backup is made")
    assert answers[-1].content.startswith(b"age-encryption.org/v1\n")
