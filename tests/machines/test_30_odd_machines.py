"""Machines that are set up oddly: the installer and the join work there, or say what is wrong.

00 umask 000 and HOME=/: nothing that is writable for others comes about
01 the package database locked by somebody else (long: four minutes)
02 a clock in the year 2000: installed and joined by the pin, ready once the clock is right
03 a plain user without sudo is told at once what needs root, and nothing is made
04 a plain user with --prefix: installed and joined without root, in folders of his own
05 a user with sudo that asks nothing: the pasted line as it stands
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.machines import installing, machine, past_clock, tree

WORLD_WRITABLE = (
    "find /opt/enlist /var/lib/enlist /etc/systemd/system /usr/local -perm /0022 -not -type l"
)
JUNE_2000 = 960_000_000


@pytest.fixture(scope="module")
def odd(new_machine: Callable[..., machine.Placing]) -> Iterator[machine.Machine]:
    """A machine with a plain user; its own suite puts it right again."""
    with new_machine("odd") as booted:
        booted.boot()
        booted.run("useradd", "--create-home", "--shell", "/bin/bash", "plain")
        yield booted


def test_00_umask_000_and_home_at_the_root(
    platform: installing.Platform, new_machine: Callable[..., machine.Placing]
) -> None:
    with new_machine("umask") as bare:
        bare.boot()
        bare.run(
            *("sh", "-c", 'umask 000; exec "$@"', "sh"),
            *installing.install_command("worker", "--join-token-file", "-"),
            stdin=platform.token("umask-1").join_token,
            environment={"HOME": "/"},
            seconds=installing.INSTALL_SECONDS,
        )
        platform.wait_state("umask-1", "ready")
        assert bare.run("sh", "-c", WORLD_WRITABLE) == ""
        assert bare.run("find", "/var/lib/enlist/worker", "-type", "f", "-perm", "/0077") == ""
        assert bare.run("sh", "-c", "ls -A / | grep '^\\.' || true") == ""


@pytest.mark.parametrize(
    "seconds", [6, pytest.param(240, marks=pytest.mark.long)], ids=["short", "four-minutes"]
)
def test_01_a_locked_package_database_is_waited_for(
    new_machine: Callable[..., machine.Placing], seconds: int
) -> None:
    with new_machine("locked") as bare:
        bare.boot()
        hold = (
            "import fcntl, sys, time\n"
            "for name in ('lock-frontend', 'lock'):\n"
            "    file = open(f'/var/lib/dpkg/{name}', 'w')\n"
            "    fcntl.lockf(file, fcntl.LOCK_EX)\n"
            "    globals()[name] = file\n"
            "print('held', flush=True)\n"
            f"time.sleep({seconds})\n"
        )
        with bare.started("python3", "-c", hold) as holding:
            assert holding.stdout is not None
            assert holding.stdout.readline() == b"held\n"
            installing.install(bare, "worker", seconds=seconds + installing.INSTALL_SECONDS)
        assert bare.has("/opt/enlist/worker/current")


def test_02_a_clock_in_the_year_2000(
    platform: installing.Platform, new_machine: Callable[..., machine.Placing], tmp_path: Path
) -> None:
    reason = past_clock.why_not()
    if reason is not None:
        pytest.skip(reason)
    clock = past_clock.PastClock(tmp_path)
    clock.show(seconds_since_1970=JUNE_2000)
    past = past_clock.ENVIRONMENT
    with new_machine("past", options=[clock.option]) as bare:
        bare.boot()
        bare.run("systemctl", "set-environment", *(f"{k}={v}" for k, v in past.items()))
        assert bare.run("date", "+%Y", environment=past).strip() == "2000"
        with installing.explained(bare, "enlist-agent.service"):
            said = installing.install(
                *(bare, "worker", "--join-token-file", "-"),
                stdin=platform.token("past-1").join_token,
                environment=past,
            )
            assert "clock" in said.err
            bare.until("systemctl", "is-active", "enlist-agent.service")
            # By its clock no trust key is valid yet, so it could verify no work: not ready.
            assert platform.node("past-1")["state"] == "enrolled"
            clock.set_right()
            platform.wait_state("past-1", "ready", seconds=90)


def test_03_a_plain_user_is_told_at_once_what_needs_root(odd: machine.Machine) -> None:
    before = odd.written()
    done = installing.install(odd, "worker", user="plain", expect=2)
    assert "root" in done.err
    assert "--prefix" in done.err
    odd.run("mv", "/usr/bin/sudo", "/usr/bin/sudo.away")
    try:
        done = installing.install(odd, "worker", user="plain", expect=2)
    finally:
        odd.run("mv", "/usr/bin/sudo.away", "/usr/bin/sudo")
    assert "root" in done.err
    assert tree.notable(before, odd.written()) == {}


def test_04_a_plain_user_installs_and_joins_below_a_prefix(
    platform: installing.Platform, odd: machine.Machine
) -> None:
    said = installing.install(odd, "worker", "--prefix", "/home/plain/enlist", user="plain")
    assert "worker join" in said.err
    command = "/home/plain/.local/bin/enlist"
    token = platform.token("plain-1").join_token
    odd.run(command, "worker", "join", "-", stdin=token, user="plain")
    data_dir = "/home/plain/.local/state/enlist/worker"
    with odd.started(command, "agent", "--data-dir", data_dir, user="plain"):
        platform.wait_state("plain-1", "ready")
    assert odd.run("find", "/home/plain", "-not", "-user", "plain") == ""
    assert not odd.has("/opt/enlist")


def test_05_a_user_with_sudo_pastes_the_line(
    platform: installing.Platform, odd: machine.Machine
) -> None:
    odd.write("/etc/sudoers.d/plain", "plain ALL=(ALL) NOPASSWD: ALL\n", mode=0o440)
    token = platform.token("sudo-1")
    odd.write("/home/plain/token", token.join_token, mode=0o644)
    line = f"{token.bare_command} --join-token-file /home/plain/token --yes"
    odd.run("bash", "-o", "pipefail", "-c", line, user="plain", seconds=installing.INSTALL_SECONDS)
    platform.wait_state("sudo-1", "ready")
    assert odd.run("find", "/var/lib/enlist/worker", "-not", "-user", "enlist-worker") == ""
