"""`enlist doctor` on a worker: what is wrong is found, named with its class, and mended if safe."""

import dataclasses
import json
import os
import pathlib
import shutil
import socket
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.support import machine, real_platform, worker_command
from worker_agent.settings import paths

pytestmark = pytest.mark.timeout(180)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rig:
    """A Platform and a machine that joined it and listens."""

    platform: real_platform.RealPlatform
    machine: machine.Machine

    @property
    def where(self) -> paths.Paths:
        return paths.Paths(folder=self.machine.data_dir)

    async def doctor(
        self, *more: str, environment: Mapping[str, str] | None = None
    ) -> worker_command.Ended:
        return await worker_command.enlist(
            *("doctor", "-o", "json", "--data-dir", str(self.machine.data_dir), *more),
            environment=environment,
        )


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[real_platform.RealPlatform]:
    with real_platform.running(tmp_path_factory.mktemp("doctor") / "platform") as running:
        yield running


@pytest.fixture
def rig(platform: real_platform.RealPlatform, tmp_path: pathlib.Path) -> Rig:
    joined = machine.in_folder(tmp_path)
    joined.join(machine.issue(platform, f"w-{joined.port}"))
    return Rig(platform=platform, machine=joined)


def found(done: worker_command.Ended) -> dict[str, dict[str, Any]]:
    """The findings by name."""
    return {check["name"]: check for check in done.document["checks"]}


def failed(done: worker_command.Ended) -> dict[str, str]:
    """What failed and its class."""
    return {
        name: check["class"] for name, check in found(done).items() if check["status"] == "failed"
    }


async def test_a_worker_that_works_is_told_so_within_the_time(rig: Rig) -> None:
    with rig.machine.agent():
        machine.wait_for_state(rig.platform, f"w-{rig.machine.port}", "ready")
        started = time.monotonic()
        done = await rig.doctor()
        took = time.monotonic() - started
    assert failed(done) == {}, done.out
    assert done.code == 0
    assert took < 20  # it takes 2 s where nothing else runs
    assert list(found(done)) == [
        f"worker.{name}"
        for name in ("files", "disk", "joined", "identity", "trust", "agent", "port", "session",
                     "proxy", "dns.enrollment", "dns.gateway", "enrollment", "clock", "gateway",
                     "admission", "path-mtu")
    ]  # fmt: skip
    assert done.document["status"] in ("ok", "warning")
    assert abs(found(done)["worker.clock"]["facts"]["ahead_seconds"]) <= 1


async def test_looking_changes_no_file(rig: Rig) -> None:
    rig.where.trust.chmod(0o644)
    before = {path: path.stat() for path in rig.machine.data_dir.rglob("*")}
    await rig.doctor()
    await rig.doctor("--fix", "--check")
    after = {path: path.stat() for path in rig.machine.data_dir.rglob("*")}
    kept = ("st_mode", "st_uid", "st_mtime_ns", "st_size", "st_ino")
    assert {path: [getattr(info, name) for name in kept] for path, info in before.items()} == {
        path: [getattr(info, name) for name in kept] for path, info in after.items()
    }


async def test_an_agent_that_does_not_run_needs_the_operator(rig: Rig) -> None:
    done = await rig.doctor()
    assert failed(done) == {"worker.agent": "needs-operator", "worker.port": "needs-operator"}
    assert done.code == 6
    assert found(done)["worker.agent"]["command"].startswith("enlist agent --data-dir")


async def test_another_program_on_the_port_is_named(rig: Rig) -> None:
    with socket.create_server(("0.0.0.0", rig.machine.port)):
        done = await rig.doctor()
    check = found(done)["worker.port"]
    assert f"pid {os.getpid()}" in check["detail"]
    assert check["class"] == "needs-operator"


async def test_lax_modes_are_found_and_with_fix_closed_and_said(rig: Rig) -> None:
    rig.where.key.chmod(0o640)
    rig.where.folder.chmod(0o755)
    done = await rig.doctor()
    assert failed(done)["worker.files"] == "needs-operator"
    assert "--fix" in found(done)["worker.files"]["command"]
    planned = await rig.doctor("--fix", "--check")
    assert planned.document["check"] is True
    assert [change["action"] for change in planned.document["changes"]] == ["chmod", "chmod"]
    assert rig.where.key.stat().st_mode & 0o777 == 0o640
    mended = await rig.doctor("--fix")
    assert "worker.files" not in failed(mended)
    assert rig.where.key.stat().st_mode & 0o777 == 0o600
    assert str(rig.where.key) in mended.err


async def test_what_killed_programs_left_is_removed_by_fix(rig: Rig) -> None:
    left = rig.where.folder / ".tmp-trust.json-0123abcd"
    left.write_text("half")
    done = await rig.doctor()
    assert found(done)["worker.files"]["status"] == "warning"
    await rig.doctor("--fix")
    assert not left.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="giving a file away needs root")
async def test_a_file_that_root_left_in_the_agents_folder_is_given_back(rig: Rig) -> None:
    for path in (rig.where.folder, *rig.where.folder.rglob("*")):
        os.chown(path, 4711, 4711)
    os.chown(rig.where.trust, 0, 0)  # as `sudo enlist worker refresh-trust` would
    done = await rig.doctor()
    assert "belongs to uid 0" in found(done)["worker.files"]["detail"]
    mended = await rig.doctor("--fix")
    assert "worker.files" not in failed(mended)
    assert rig.where.trust.stat().st_uid == 4711


async def test_a_pipe_or_a_link_in_the_folder_keeps_root_neither_waiting_nor_reading(
    rig: Rig, tmp_path: pathlib.Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("elsewhere-word")
    os.mkfifo(rig.where.session)
    rig.where.orders.symlink_to(elsewhere)
    rig.where.trust.unlink()
    os.mkfifo(rig.where.trust, 0o600)
    with rig.machine.agent():
        done = await rig.doctor("--fix")
    assert failed(done)["worker.files"] == "needs-operator"
    assert "elsewhere-word" not in done.out
    assert elsewhere.read_text() == "elsewhere-word"


async def test_damage_is_told_and_is_nothing_to_mend_by_itself(rig: Rig) -> None:
    rig.where.agent.write_text("{")
    done = await rig.doctor("--fix")
    assert failed(done)["worker.files"] == "needs-operator"
    assert str(rig.where.agent) in found(done)["worker.files"]["detail"]
    assert rig.where.agent.read_text() == "{"


async def test_files_of_two_machines_are_told_apart(
    rig: Rig, platform: real_platform.RealPlatform, tmp_path: pathlib.Path
) -> None:
    other = machine.in_folder(tmp_path, name="other")
    other.join(machine.issue(platform, f"o-{other.port}"))
    shutil.copy(other.data_dir / "agent.json", rig.where.agent)
    done = await rig.doctor()
    assert failed(done)["worker.joined"] == "needs-operator"
    assert "two machines" in found(done)["worker.joined"]["detail"]


async def test_a_key_that_does_not_fit_its_certificate_is_told(
    rig: Rig, platform: real_platform.RealPlatform, tmp_path: pathlib.Path
) -> None:
    other = machine.in_folder(tmp_path, name="other")
    other.join(machine.issue(platform, f"k-{other.port}"))
    shutil.copy(paths.Paths(folder=other.data_dir).key, rig.where.key)
    done = await rig.doctor()
    assert failed(done)["worker.identity"] == "needs-operator"
    assert "another key" in found(done)["worker.identity"]["detail"]


async def test_a_proxy_that_cannot_be_used_is_named_without_its_password(rig: Rig) -> None:
    done = await rig.doctor(environment={"https_proxy": "socks5://u:hidden-word@127.0.0.1:1"})
    assert failed(done)["worker.proxy"] == "needs-operator"
    silent = await rig.doctor(environment={"https_proxy": "http://u:hidden-word@127.0.0.1:1"})
    assert failed(silent)["worker.proxy"] == "transient"
    for ended in (done, silent):
        assert "hidden-word" not in ended.out + ended.err


async def test_a_newer_trust_set_is_fetched_by_fix(rig: Rig) -> None:
    rig.platform.enlist("platform", "rotate-trust-key", "--yes")
    before = rig.where.trust.read_bytes()
    done = await rig.doctor()
    check = found(done)["worker.enrollment"]
    assert (check["status"], check["command"]) == ("warning", "enlist worker refresh-trust")
    mended = await rig.doctor("--fix")
    assert found(mended)["worker.enrollment"]["status"] == "ok"
    assert rig.where.trust.read_bytes() != before


async def test_another_key_that_a_signed_statement_vouches_for_is_no_alarm(rig: Rig) -> None:
    rig.platform.enlist("platform", "rotate-tls-key", "--now", "--yes")
    deadline = time.monotonic() + 30
    done = await rig.doctor()
    while found(done)["worker.enrollment"]["status"] != "warning":
        assert time.monotonic() < deadline, done.out
        done = await rig.doctor()
    assert "vouches" in found(done)["worker.enrollment"]["detail"]


async def test_on_a_machine_that_never_joined_the_next_command_is_told(
    tmp_path: pathlib.Path,
) -> None:
    done = await worker_command.enlist("doctor", "-o", "json", "--data-dir", str(tmp_path))
    assert done.code == 6
    (check,) = done.document["checks"]
    assert check["command"].startswith("enlist worker join")


async def test_a_silent_platform_is_transient_and_costs_no_more_than_the_time(
    tmp_path: pathlib.Path,
) -> None:
    with real_platform.running(tmp_path / "platform") as platform:
        joined = machine.in_folder(tmp_path)
        joined.join(machine.issue(platform, "w-1"))
        port = int(platform.enrollment_url.rpartition(":")[2])
    with socket.create_server(("127.0.0.1", port)):  # takes connections and says nothing
        started = time.monotonic()
        done = await Rig(platform=platform, machine=joined).doctor()
        assert time.monotonic() - started < 25  # 12 s, and the start of the command under load
    assert failed(done)["worker.enrollment"] == "transient"


def test_for_people_there_is_a_mark_a_line_and_the_command_below(rig: Rig) -> None:
    text = real_platform.run_enlist(
        "doctor", "--data-dir", str(rig.machine.data_dir), expect=6,
        environment={"PYTHONIOENCODING": "utf-8"},
    )  # fmt: skip
    lines = text.splitlines()
    assert any(line.startswith("  ✓ files") for line in lines)
    at = next(i for i, line in enumerate(lines) if line.startswith("  ✗ agent"))
    assert lines[at + 1].strip().startswith("Run: enlist agent")
    assert lines[-1] == "2 failed."
    assert json.dumps("free_bytes") not in text


def dialling(platform: real_platform.RealPlatform, folder: pathlib.Path) -> Rig:
    """A machine that joined to dial out."""
    joined = machine.in_folder(folder, name="dialling")
    token = machine.issue(platform, f"d-{joined.port}")
    real_platform.run_enlist("--data-dir", str(joined.data_dir), "worker", "join", "-", stdin=token)
    return Rig(platform=platform, machine=joined)


async def test_a_node_that_dials_out_shows_its_session_and_is_not_disturbed(
    platform: real_platform.RealPlatform, tmp_path: pathlib.Path
) -> None:
    rig = dialling(platform, tmp_path)
    node_id = f"d-{rig.machine.port}"
    with rig.machine.agent() as agent:
        machine.wait_for_state(platform, node_id, "ready")
        before = machine.node(platform, node_id)
        done = await rig.doctor()
        again = await rig.doctor()
        after = machine.node(platform, node_id)
        said = real_platform.tail(agent.log)
    assert failed(done) == {}, done.out
    assert found(done)["worker.session"]["facts"]["state"] == "open"
    assert found(again)["worker.admission"]["status"] == "ok"
    assert (after["state"], after["generation"], after["reason"]) == (
        "ready", before["generation"], None)  # fmt: skip
    assert said.count("Session open") == 1


async def test_a_copy_of_a_machine_is_told_that_it_is_one(
    platform: real_platform.RealPlatform, tmp_path: pathlib.Path
) -> None:
    rig = dialling(platform, tmp_path)
    copied = tmp_path / "copied"
    shutil.copytree(rig.machine.data_dir, copied)
    with rig.machine.agent():
        machine.wait_for_state(platform, f"d-{rig.machine.port}", "ready")
        copy = dataclasses.replace(rig.machine, data_dir=copied)
        done = await Rig(platform=platform, machine=copy).doctor()
    assert failed(done)["worker.admission"] == "needs-operator"
    assert "Another machine" in found(done)["worker.admission"]["detail"]


async def test_a_removed_node_is_told_so(
    platform: real_platform.RealPlatform, tmp_path: pathlib.Path
) -> None:
    rig = dialling(platform, tmp_path)
    platform.enlist("nodes", "remove", f"d-{rig.machine.port}", "--yes")
    done = await rig.doctor()
    assert failed(done)["worker.admission"] == "needs-operator"
    assert "enlist nodes allow" in found(done)["worker.admission"]["command"]
