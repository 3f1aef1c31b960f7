"""A Platform with both address families and machines that have one, or one that loses all (F4)."""

import pathlib
import subprocess
import time
from collections.abc import Callable

import pytest

from tests.support import machine, real_platform, two_hosts

FALLBACK_SECONDS = 3.0


def join_on(hosts: two_hosts.Hosts, worker: machine.Machine, token: str, *, address: str) -> float:
    """Joins on the machine's host; gives the seconds it took."""
    began = time.monotonic()
    done = subprocess.run(
        [*hosts.in_machine, *real_platform.ENLIST, "--data-dir", str(worker.data_dir), "worker",
         "join", "-", "--address", address, "--port", str(worker.port)],
        input=token,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=real_platform.clean_environment(),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "not reachable" not in done.stderr, done.stderr
    return time.monotonic() - began


CASES: dict[str, tuple[Callable[[two_hosts.Hosts], None], str]] = {
    "without IPv6": (
        lambda hosts: hosts.take_away(two_hosts.MACHINE_IPV6),
        two_hosts.MACHINE_IPV4,
    ),
    "without IPv4": (
        lambda hosts: hosts.take_away(two_hosts.MACHINE_IPV4),
        two_hosts.MACHINE_IPV6,
    ),
    "whose IPv6 packets are lost without a word": (
        lambda hosts: hosts.lose_everything_sent_by_ipv6(),
        two_hosts.MACHINE_IPV4,
    ),
}


@pytest.mark.xdist_group("two-hosts")
@pytest.mark.parametrize("sentence", CASES)
def test_a_machine_joins_a_platform_of_both_families(sentence: str, tmp_path: pathlib.Path) -> None:
    change, address = CASES[sentence]
    with (
        two_hosts.joined() as hosts,
        real_platform.running(
            tmp_path / "platform",
            addresses=(
                two_hosts.PLATFORM_NAME,
                two_hosts.PLATFORM_IPV4,
                two_hosts.PLATFORM_IPV6,
            ),
            prefix=hosts.in_platform,
        ) as platform,
    ):
        usual = join_on(
            hosts,
            machine.in_folder(tmp_path, name="before"),
            machine.issue(platform, "before-1"),
            address=two_hosts.MACHINE_IPV4,
        )
        change(hosts)
        took = join_on(
            hosts,
            machine.in_folder(tmp_path, name="after"),
            machine.issue(platform, "after-1"),
            address=address,
        )
        assert took < usual + FALLBACK_SECONDS
        assert machine.node(platform, "after-1")["state"] == "enrolled"
