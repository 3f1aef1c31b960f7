"""`enlist doctor` on a Platform, running and stopped: what is wrong is found and named."""

import asyncio
import dataclasses
import json
import os
import pathlib
import secrets
import shutil
import sqlite3
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import yaml

from operator_cli import checkup_run, main
from tests.support import machine, real_platform, worker_command

pytestmark = pytest.mark.timeout(180)

Checks = dict[str, dict[str, Any]]


async def doctor(
    data_dir: pathlib.Path, *more: str, environment: Mapping[str, str] | None = None
) -> worker_command.Ended:
    return await worker_command.enlist(
        *("doctor", "-o", "json", "--data-dir", str(data_dir), *more), environment=environment
    )


def found(done: worker_command.Ended) -> Checks:
    """The findings by name."""
    return {check["name"]: check for check in done.document["checks"]}


def failed(done: worker_command.Ended) -> dict[str, str]:
    """What failed and its class."""
    return {
        name: check["class"] for name, check in found(done).items() if check["status"] == "failed"
    }


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stopped:
    """The data directory of a Platform that ran once and does not run."""

    folder: pathlib.Path


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[real_platform.RealPlatform]:
    with real_platform.running(tmp_path_factory.mktemp("doctor-p") / "platform") as running:
        yield running


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("stopped")
    with real_platform.running(folder / "platform") as running:
        machine.in_folder(folder).join(machine.issue(running, "w-1"))
    return folder / "platform"


@pytest.fixture
def stopped(once: pathlib.Path, tmp_path: pathlib.Path) -> Stopped:
    shutil.copytree(once, tmp_path / "platform")
    return Stopped(folder=tmp_path / "platform")


async def test_a_platform_that_works_is_told_so_in_one_order_within_the_time(
    platform: real_platform.RealPlatform,
) -> None:
    started = time.monotonic()
    done = await doctor(platform.data_dir)
    assert time.monotonic() - started < 20  # it takes 2 s where nothing else runs
    assert failed(done) == {}, done.out
    assert done.code == 0
    names = [name.removeprefix("platform.") for name in found(done)]
    assert names == [
        "files", "disk", "process", "store", "store-writes", "store-integrity", "store-size",
        "trust-keys", "certificates", "clock", "engines", "leases", "nodes", "agents", "mesh",
        "backup", "api",
        "settings", "dns", "port.enrollment", "port.gateway",
    ]  # fmt: skip
    again = await doctor(platform.data_dir)
    assert list(found(again)) == list(found(done))


async def test_a_node_that_cannot_be_reached_is_named_from_the_platforms_side(
    tmp_path: pathlib.Path,
) -> None:
    with real_platform.running(tmp_path / "platform") as platform:
        joined = machine.in_folder(tmp_path)
        joined.join(machine.issue(platform, "w-1"))  # its Agent is never started
        done = await doctor(platform.data_dir)
        assert failed(done)["platform.agents"] == "transient"
        assert "w-1" in found(done)["platform.agents"]["detail"]
        assert "w-1" in found(done)["platform.agents"]["facts"]["silent"]
        assert "0/1 are ready" in found(done)["platform.nodes"]["detail"]
        assert done.code == 75
        with joined.agent():
            machine.wait_for_state(platform, "w-1", "ready")
            well = await doctor(platform.data_dir)
        assert failed(well) == {}
        assert "1/1 are ready" in found(well)["platform.nodes"]["detail"]


async def test_many_who_ask_at_once_share_one_look(platform: real_platform.RealPlatform) -> None:
    many = await asyncio.gather(*(doctor(platform.data_dir) for _ in range(4)))
    assert [failed(done) for done in many] == [{}] * 4


async def test_settings_that_the_next_start_would_refuse_are_found_now(
    platform: real_platform.RealPlatform,
) -> None:
    config = platform.data_dir / "config.toml"
    config.write_text("[probe]\nintervall_seconds = 3\n")
    try:
        done = await doctor(platform.data_dir)
        assert failed(done) == {"platform.settings": "needs-operator"}
        assert "probe.interval_seconds" in found(done)["platform.settings"]["detail"]
        config.write_text("[probe]\ninterval_seconds = 3\n")
        changed = await doctor(platform.data_dir)
        assert found(changed)["platform.settings"]["status"] == "warning"
        assert "probe.interval_seconds" in found(changed)["platform.settings"]["detail"]
    finally:
        config.unlink()


async def test_who_holds_a_locked_store_is_named(platform: real_platform.RealPlatform) -> None:
    held = sqlite3.connect(platform.data_dir / "enlist.db", isolation_level=None)
    try:
        held.execute("BEGIN IMMEDIATE")
        done = await doctor(platform.data_dir)
    finally:
        held.close()
    check = found(done)["platform.store-writes"]
    assert (check["status"], check["class"]) == ("failed", "transient")
    assert f"pid {os.getpid()}" in check["detail"]
    assert done.code == 75


async def test_lax_modes_are_closed_by_fix_while_it_runs(
    platform: real_platform.RealPlatform,
) -> None:
    key = platform.data_dir / "master.key"
    key.chmod(0o644)
    done = await doctor(platform.data_dir)
    assert failed(done) == {"platform.files": "needs-operator"}
    assert "rotate-master-key" in found(done)["platform.files"]["detail"]
    mended = await doctor(platform.data_dir, "--fix")
    assert failed(mended) == {}
    assert key.stat().st_mode & 0o777 == 0o600


async def test_a_stopped_platform_is_read_from_its_files_and_says_so(stopped: Stopped) -> None:
    before = {path: path.stat().st_mtime_ns for path in stopped.folder.rglob("*")}
    done = await doctor(stopped.folder)
    assert failed(done) == {"platform.process": "needs-operator"}
    assert done.code == 6
    assert found(done)["platform.process"]["command"].startswith("enlist serve")
    well = {name for name, check in found(done).items() if check["status"] == "ok"}
    assert well >= {
        f"platform.{name}"
        for name in ("files", "store", "master-key", "store-integrity", "trust-keys",
                     "certificates", "clock", "settings")
    }  # fmt: skip
    after = {path: path.stat().st_mtime_ns for path in stopped.folder.rglob("*")}
    assert after == before


async def test_another_platforms_master_key_is_found_before_the_start(stopped: Stopped) -> None:
    key = stopped.folder / "master.key"
    key.write_text(f"emk_{secrets.token_hex(32)}\n")
    done = await doctor(stopped.folder)
    assert failed(done)["platform.master-key"] == "needs-operator"
    key.unlink()
    gone = await doctor(stopped.folder)
    assert "missing" in found(gone)["platform.master-key"]["detail"]


async def test_a_damaged_store_is_found(stopped: Stopped) -> None:
    store = stopped.folder / "enlist.db"
    content = bytearray(store.read_bytes())
    for at in range(8192, len(content), 4096):
        content[at : at + 1024] = b"\xff" * 1024
    store.write_bytes(content)
    done = await doctor(stopped.folder)
    assert "needs-operator" in {
        kind for name, kind in failed(done).items() if name.startswith("platform.store")
    }


async def test_a_store_of_the_future_shows_that_the_clock_is_behind(stopped: Stopped) -> None:
    with sqlite3.connect(stopped.folder / "enlist.db") as connection:
        connection.execute("UPDATE events SET at = at + 86400000000")
    done = await doctor(stopped.folder)
    assert failed(done)["platform.clock"] == "needs-operator"
    assert found(done)["platform.clock"]["command"].startswith("timedatectl")


async def test_a_newer_store_is_told_and_left_alone(stopped: Stopped) -> None:
    with sqlite3.connect(stopped.folder / "enlist.db") as connection:
        connection.execute("INSERT INTO migrations VALUES (99, 0, '9.9.9')")
    done = await doctor(stopped.folder)
    assert failed(done)["platform.store"] == "needs-operator"


async def test_postgresql_that_is_away_is_transient_and_its_password_stays_hidden(
    stopped: Stopped,
) -> None:
    url = "postgresql://enlist:hidden-word-4711@127.0.0.1:9/enlist"
    done = await doctor(stopped.folder, environment={"ENLIST_STORE__DATABASE_URL": url})
    assert failed(done)["platform.store"] == "transient"
    assert "hidden-word-4711" not in done.out + done.err


async def test_on_postgresql_the_doctor_sees_the_store_running_and_stopped(
    postgres_url: str, tmp_path: pathlib.Path
) -> None:
    with real_platform.running(tmp_path / "platform", database_url=postgres_url) as platform:
        running = await doctor(platform.data_dir)
        assert failed(running) == {}, running.out
        assert found(running)["platform.store"]["facts"]["kind"] == "postgresql"
    done = await doctor(
        tmp_path / "platform", environment={"ENLIST_STORE__DATABASE_URL": postgres_url}
    )
    assert failed(done) == {"platform.process": "needs-operator"}, done.out
    assert found(done)["platform.master-key"]["status"] == "ok"


def test_a_machine_with_both_is_looked_at_as_both_in_one_document(
    once: pathlib.Path,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shutil.copytree(once, tmp_path / "platform")
    shutil.copytree(once.with_name("machine"), tmp_path / "worker")
    monkeypatch.setattr(checkup_run, "_SYSTEM", tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert main.run(["doctor", "-o", "json"]) == 6
    shown = json.loads(capsys.readouterr().out)
    places = [check["name"].partition(".")[0] for check in shown["checks"]]
    assert places == sorted(places)
    assert set(places) == {"platform", "worker"}
    main.run(["doctor", "-o", "yaml"])
    assert yaml.safe_load(capsys.readouterr().out)["checks"][0]["name"] == "platform.files"


def test_the_route_gives_the_engines_own_findings(
    platform: real_platform.RealPlatform,
) -> None:
    shown = platform.api("GET", "/platform/checkup")
    assert {check["name"] for check in shown["checks"]} >= {"store", "nodes", "agents"}
