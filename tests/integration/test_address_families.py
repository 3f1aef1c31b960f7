"""A Platform with both address families and machines that have one, or one that loses all (F4)."""

import pathlib
import subprocess
import time
from collections.abc import Callable

import httpx
import pytest
from cryptography import x509

from tests.support import machine, real_platform, two_hosts
from wire_protocol import join_token
from worker_agent.settings import paths

FALLBACK_SECONDS = 3.0
pytestmark = pytest.mark.xdist_group("two-hosts")


def join_on(hosts: two_hosts.Hosts, worker: machine.Machine, token: str, *how: str) -> float:
    """Joins on the machine's host; gives the seconds it took."""
    began = time.monotonic()
    done = subprocess.run(
        [*hosts.in_machine, *real_platform.ENLIST, "--data-dir", str(worker.data_dir),
         "worker", "join", *how],
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


def listening(worker: machine.Machine, *addresses: str) -> list[str]:
    """The join token from standard input, the Agent's port open at these addresses."""
    repeated = [word for address in addresses for word in ("--address", address)]
    return ["-", *repeated, "--port", str(worker.port)]


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
        before = machine.in_folder(tmp_path, name="before")
        usual = join_on(
            hosts,
            before,
            machine.issue(platform, "before-1"),
            *listening(before, two_hosts.MACHINE_IPV4),
        )
        change(hosts)
        after = machine.in_folder(tmp_path, name="after")
        took = join_on(hosts, after, machine.issue(platform, "after-1"), *listening(after, address))
        assert took < usual + FALLBACK_SECONDS
        assert machine.node(platform, "after-1")["state"] == "enrolled"


def test_f2_hosts_with_two_addresses_of_each_family_need_no_choice_and_lose_none(
    tmp_path: pathlib.Path,
) -> None:
    everything = (two_hosts.MACHINE_IPV4, two_hosts.MACHINE_IPV6, *two_hosts.SECOND["machine"])
    with two_hosts.joined() as hosts:
        hosts.give_second_addresses()
        with real_platform.running(
            tmp_path / "platform", addresses=(), prefix=hosts.in_platform
        ) as platform:
            token = machine.issue(platform, "all-1")
            told = httpx.URL(join_token.decode(token).url).host  # one, and not two in a line
            assert told in {two_hosts.PLATFORM_IPV4, two_hosts.SECOND["platform"][0]}
            worker = machine.in_folder(tmp_path)
            join_on(hosts, worker, token, *listening(worker, *everything))
            names = x509.load_pem_x509_certificate(
                paths.Paths(folder=worker.data_dir).certificate.read_bytes()
            ).extensions.get_extension_for_class(x509.SubjectAlternativeName)
            held = {str(one) for one in names.value.get_values_for_type(x509.IPAddress)}
            assert held == set(everything)
            assert machine.node(platform, "all-1")["state"] == "enrolled"


@pytest.mark.parametrize("proof", ["a pin", "a CA file"])
def test_c6_a_platforms_name_with_its_final_dot_is_the_same_name(
    proof: str, tmp_path: pathlib.Path
) -> None:
    with (
        two_hosts.joined() as hosts,
        real_platform.running(
            tmp_path / "platform", addresses=(two_hosts.PLATFORM_NAME,), prefix=hosts.in_platform
        ) as platform,
    ):
        issued = join_token.decode(machine.issue(platform, "dot-1"))
        port = httpx.URL(issued.url).port
        anchor = tmp_path / "anchor.pem"
        (held,) = platform.data_dir.glob("run/**/tls.pem")  # the key, and then the certificate
        _, begin, rest = held.read_text().partition("-----BEGIN CERTIFICATE-----")
        anchor.write_text(begin + rest)
        how = {
            "a pin": ("--platform-fingerprint", issued.pins[0]),
            "a CA file": ("--platform-ca-file", str(anchor)),
        }[proof]
        join_on(
            hosts,
            machine.dialling_out(tmp_path),
            issued.token.text(),
            *("--platform-url", f"https://{two_hosts.PLATFORM_NAME}.:{port}"),
            *("--node-id", "dot-1", "--enrollment-token-file", "-", *how),
        )
        assert machine.node(platform, "dot-1")["state"] == "enrolled"
