"""`enlist doctor` on real machines: all is well after an installation, and what is damaged is told.

00 installed and joined, nothing is wrong on either machine
01 links, modes, units and their enablement taken away: each is told, and `--fix` mends them
02 an Agent that somebody stopped is told with its unit's command
03 a plain user is told what he may not see
04 the archive for support holds receipt and unit states
05 what needs a person is told and left alone: an account with a shell, a changed file
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.machines import installing, machine

NODE = "doctor-1"
HERE = "installation.worker"


@pytest.fixture(scope="module")
def worker(new_machine: Callable[..., machine.Placing]) -> Iterator[machine.Machine]:
    """A bare, running machine."""
    with new_machine("doctor") as booted:
        booted.boot()
        yield booted


def examined(
    on: machine.Machine, *more: str, program: str = "enlist", user: str = "root"
) -> dict[str, Any]:
    """The document that it gives."""
    done = on.attempt(program, "doctor", "-o", "json", *more, user=user)
    assert done.code in (0, 6, 75), done
    document: dict[str, Any] = json.loads(done.out)
    return document


def failed(document: dict[str, Any]) -> dict[str, str]:
    """What failed, each with the command that mends it."""
    return {
        check["name"]: check["command"]
        for check in document["checks"]
        if check["status"] == "failed"
    }


def test_00_nothing_is_wrong_after_an_installation(
    platform: installing.Platform, worker: machine.Machine
) -> None:
    installing.install(
        *(worker, "worker", "--join-token-file", "-"), stdin=platform.token(NODE).join_token
    )
    platform.wait_state(NODE, "ready")
    for one, role in ((worker, "worker"), (platform.machine, "platform")):
        document = examined(one)
        # Nodes of other suites are unreachable: their machines were taken away.
        assert failed(document).keys() <= {"platform.nodes"}, document
        names = {check["name"] for check in document["checks"]}
        assert {f"installation.{role}.receipt", f"{role}.files"} <= names


def test_01_what_is_safe_is_mended(worker: machine.Machine) -> None:
    program = worker.run("readlink", "-f", "/opt/enlist/worker/current/bin/enlist").strip()
    worker.shell(
        "rm /opt/enlist/worker/current /usr/local/bin/enlist\n"
        "rm /etc/systemd/system/enlist-agent.path\n"
        "chmod 0777 /opt/enlist\n"
        "chmod 0755 /var/lib/enlist/worker\n"
        "systemctl daemon-reload\n"
        "systemctl disable enlist-agent.service\n"
    )
    told = failed(examined(worker, program=program))
    assert {f"{HERE}.release", f"{HERE}.command", f"{HERE}.owners", "worker.files"} <= set(told)
    assert told[f"{HERE}.release"] == f"sudo {program} doctor --fix"
    mended = examined(worker, "--fix", program=program)
    assert failed(mended) == {}
    assert {"link", "chmod", "write", "run"} == {one["action"] for one in mended["changes"]}
    assert worker.run("systemctl", "is-enabled", "enlist-agent.service").strip() == "enabled"
    assert worker.run("stat", "-c", "%a", "/var/lib/enlist/worker").strip() == "700"


def test_02_an_agent_that_was_stopped_is_told_with_its_units_command(
    platform: installing.Platform, worker: machine.Machine
) -> None:
    worker.run("systemctl", "stop", "enlist-agent.service")
    told = failed(examined(worker))
    start = "sudo systemctl start enlist-agent.service"
    assert told == {f"{HERE}.unit.enlist-agent.service": start, "worker.agent": start}
    worker.run("systemctl", "start", "enlist-agent.service")
    platform.wait_state(NODE, "ready")


def test_03_a_plain_user_is_told_what_he_may_not_see(worker: machine.Machine) -> None:
    worker.run("useradd", "--create-home", "bob")
    told = failed(examined(worker, user="bob"))
    assert told == {"worker.files": "sudo enlist doctor --data-dir /var/lib/enlist/worker"}


def test_04_the_archive_holds_receipt_and_units(worker: machine.Machine) -> None:
    worker.run("enlist", "doctor", "--bundle", "/root/support.tar.gz")
    names = worker.run("tar", "-tzf", "/root/support.tar.gz")
    for part in ("receipt.json", "units.txt"):
        assert f"/{HERE}/{part}" in names
    units = worker.shell("tar -xzOf /root/support.tar.gz --wildcards '*/units.txt'")
    assert "[enlist-agent.service]\nId=enlist-agent.service" in units


def test_05_what_needs_a_person_is_left_alone(worker: machine.Machine) -> None:
    worker.shell(
        "usermod --shell /bin/bash enlist-worker\n"
        "for file in /opt/enlist/worker/current/lib/python3.*/site-packages/installer/tree.py; do\n"
        "    echo '# mine' >>\"$file\"\n"
        "done\n"
    )
    before = failed(examined(worker))
    assert set(before) == {f"{HERE}.account.enlist-worker", f"{HERE}.hashes"}
    assert examined(worker, "--fix")["changes"] == []
    worker.shell(before[f"{HERE}.account.enlist-worker"].replace("sudo ", ""))
    installing.install(worker, "worker")
    assert failed(examined(worker)) == {}
