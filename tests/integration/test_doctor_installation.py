"""`enlist doctor` finds what is installed by the link in the path, mends it, and packs it."""

import json
import os
import pathlib
import subprocess
from typing import Any

import pytest

from installer.checkup import checkup as installation
from tests.support import installed_tree, planted, real_platform, worker_command

Tree = installed_tree.Tree


@pytest.fixture
def tree(tmp_path: pathlib.Path) -> Tree:
    return installed_tree.install_for_a_user(tmp_path / "home")


# Root sees no other installation than the test's, whatever this machine has.
_ALONE = 'mount -t tmpfs tmpfs /opt && mount -t tmpfs tmpfs /etc/systemd/system && exec "$@"'


def doctor(tree: Tree, *more: str) -> "subprocess.CompletedProcess[str]":
    alone = ("unshare", "--mount", "sh", "-c", _ALONE, "sh") if os.geteuid() == 0 else ()
    return subprocess.run(
        [*alone, *real_platform.ENLIST, "doctor", "-o", "json", *more],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=real_platform.clean_environment({"HOME": str(tree.layout.prefix.parent)}),
    )


def found(done: "subprocess.CompletedProcess[str]") -> dict[str, dict[str, Any]]:
    return {check["name"]: check for check in json.loads(done.stdout)["checks"]}


def test_an_installation_that_has_not_joined_is_told_and_so_is_the_next_command(tree: Tree) -> None:
    done = doctor(tree)
    assert done.returncode == 6
    checks = found(done)
    assert {name for name, check in checks.items() if check["status"] == "failed"} == {
        "installation.worker.joined"
    }
    assert checks["installation.worker.joined"]["command"].startswith("enlist worker join -")
    assert "without units" in checks["installation.worker.units"]["detail"]


def test_fix_says_what_it_would_do_does_it_and_prints_it(tree: Tree) -> None:
    tree.here.current.unlink()
    tree.here.prefix.chmod(0o777)
    planned = json.loads(doctor(tree, "--fix", "--check").stdout)
    assert [change["action"] for change in planned["changes"]] == ["link", "chmod"]
    assert not tree.here.current.is_symlink()
    done = doctor(tree, "--fix")
    assert tree.here.current.readlink().name == tree.release_id
    assert tree.here.prefix.stat().st_mode & 0o777 == 0o755
    assert str(tree.here.current) in done.stderr
    assert "installation.worker.release" not in {
        name for name, check in found(done).items() if check["status"] == "failed"
    }


def test_on_an_installed_machine_the_service_is_started_and_not_a_program(
    tree: Tree, tmp_path: pathlib.Path
) -> None:
    found_here = installation.find(
        running=pathlib.Path("/usr"), environment={"HOME": str(tree.layout.prefix.parent)}
    )
    (by_a_user,) = [one for one in found_here if one.data_dir == tree.layout.data_dir]
    assert by_a_user.start_command is None
    by_root = installed_tree.install(tmp_path / "m").checkup()
    assert by_root.start_command == "sudo systemctl start enlist-agent.service"


async def test_another_data_directory_that_is_named_is_looked_at_alone(
    tree: Tree, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "other").mkdir()
    done = doctor(tree, "--data-dir", str(tmp_path / "other"))
    assert list(found(done)) == ["installation.data-dir"]


def test_the_archive_holds_receipt_and_release_and_no_secret(
    tree: Tree, tmp_path: pathlib.Path
) -> None:
    key = tree.here.data_dir / "identity" / "key.pem"
    key.parent.mkdir(mode=0o700)
    key.write_text("-----BEGIN PRIVATE KEY-----\nc2VjcmV0LWtleS13b3JkLW9mLWEtbm9kZQ==\n")
    pending = tree.here.data_dir / "pending-join.json"
    token = f"ent_{'0' * 16}_{'ab' * 32}_01234567"
    pending.write_text(json.dumps({"token": token}))
    archive = tmp_path / "support.tar.gz"
    done = doctor(tree, "--bundle", str(archive))
    members = planted.unpacked(archive)
    held = {name.partition("/")[2]: content for name, content in members.items()}
    receipt = json.loads(held["installation.worker/receipt.json"])
    assert receipt["release"] == tree.release_id
    assert "files.json" in held["installation.worker/files.txt"].decode()
    assert json.loads(held["installation.worker/release.json"])["version"] == "1.2.3"
    everything = {**members, "stdout": done.stdout.encode(), "stderr": done.stderr.encode()}
    secrets = [*planted.of_texts({"token": token}), *planted.of_files(tree.here.data_dir)]
    assert planted.leaks(secrets, where=everything) == []


def test_the_archive_of_a_machine_with_systemd_holds_the_states_of_its_units(
    tmp_path: pathlib.Path,
) -> None:
    made = installed_tree.install(tmp_path / "m")
    made.run_systemd()
    parts = dict(made.checkup().parts())
    assert "[enlist-agent.service]\nId=enlist-agent.service" in parts["units.txt"].decode()
    assert set(parts) == {"receipt.json", "release.json", "files.txt", "units.txt"}


async def test_without_any_installation_doctor_says_what_it_said_before(
    tmp_path: pathlib.Path,
) -> None:
    done = await worker_command.enlist("doctor", "-o", "json", "--data-dir", str(tmp_path))
    (check,) = done.document["checks"]
    assert check["name"] == "installation.data-dir"
