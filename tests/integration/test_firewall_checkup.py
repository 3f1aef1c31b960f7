"""A firewall that blocks a port is named with the command that opens it, and the command does.

The kernel's own rules, in a network of the test's own: what is said is compared with what becomes
of a real connection.
"""

import contextlib
import os
import pathlib
import shlex
import shutil
import subprocess
from collections.abc import Iterator

import pytest

from installer.checkup import around as around_kit
from installer.checkup import firewalls
from tests.support import installed_tree
from wire_protocol import findings

PORT = 8443
NFT = shutil.which("nft", path="/usr/sbin:/usr/bin:/sbin")

needs_nft = pytest.mark.skipif(
    os.geteuid() != 0 or NFT is None, reason="rules of the kernel need root and nftables"
)


class Network:
    """A host with a firewall, and a stranger beside it."""

    def __init__(self, folder: pathlib.Path, *, host: str, stranger: str) -> None:
        self._host, self._stranger = host, stranger
        self.around = around_kit.Around(root=folder, programs=str(folder))
        nft = folder / "nft"
        nft.write_text(f'#!/bin/sh\nexec ip netns exec {host} {NFT} "$@"\n')
        nft.chmod(0o755)

    def nft(self, command: str) -> None:
        done = subprocess.run(
            ["ip", "netns", "exec", self._host, str(NFT), *shlex.split(command)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr

    def judged(self) -> findings.Finding:
        (found,) = firewalls.judge(self.around, ports=[(PORT, "the Platform's calls")])
        return found

    def gets_through(self) -> bool:
        """Whether a stranger's first packet is answered; nobody listens, so by a refusal."""
        script = (
            "import socket, sys\n"
            "try: socket.create_connection(('10.98.0.1', 8443), timeout=1)\n"
            "except ConnectionRefusedError: sys.exit(0)\n"
            "except OSError: sys.exit(1)\n"
        )
        done = subprocess.run(
            ["ip", "netns", "exec", self._stranger, "python3", "-c", script], check=False
        )
        return done.returncode == 0


@pytest.fixture
def network(tmp_path: pathlib.Path) -> Iterator[Network]:
    host, stranger = f"enl-fw-h-{os.getpid()}", f"enl-fw-s-{os.getpid()}"

    def ip(*arguments: str) -> None:
        subprocess.run(["ip", *arguments], check=True, capture_output=True)

    with contextlib.ExitStack() as undo:
        for name in (host, stranger):
            ip("netns", "add", name)
            undo.callback(ip, "netns", "del", name)
        ip("-n", host, "link", "add", "cable", "type", "veth", "peer", "cable", "netns", stranger)
        for name, address in ((host, "10.98.0.1/24"), (stranger, "10.98.0.2/24")):
            ip("-n", name, "addr", "add", address, "dev", "cable")
            ip("-n", name, "link", "set", "cable", "up")
            ip("-n", name, "link", "set", "lo", "up")
        yield Network(tmp_path, host=host, stranger=stranger)


INPUT = "add chain inet filter input { type filter hook input priority 0 ; policy drop ; }"


@needs_nft
def test_a_firewall_that_drops_is_named_and_its_command_opens_it(network: Network) -> None:
    assert network.judged().status is findings.Status.OK
    assert network.gets_through()
    for command in (
        "add table inet filter",
        INPUT,
        "add rule inet filter input iif lo accept",
        "add rule inet filter input ct state established,related accept",
        "add rule inet filter input tcp dport 22 accept",
    ):
        network.nft(command)
    found = network.judged()
    assert (found.name, found.status) == ("firewall.8443", findings.Status.FAILED)
    assert "chain inet filter input" in found.detail
    assert not network.gets_through()
    assert found.command is not None
    opens = found.command.partition("   (")[0].removeprefix("sudo nft ")
    network.nft(opens)
    assert network.judged().status is findings.Status.OK
    assert network.gets_through()


RULES: dict[str, tuple[list[str], findings.Status]] = {
    "a set of ports": (["add rule inet filter input tcp dport { 22, 8443 } accept"],
                       findings.Status.OK),
    "a range in a set": (["add rule inet filter input tcp dport { 8000-9000 } accept"],
                         findings.Status.OK),
    "a named set": (["add set inet filter ports { type inet_service ; }",
                     "add element inet filter ports { 8443 }",
                     "add rule inet filter input tcp dport @ports accept"], findings.Status.OK),
    "a map of states and one of ports": (
        ["add rule inet filter input ct state vmap { established : accept, invalid : drop }",
         "add rule inet filter input tcp dport vmap { 22 : accept, 8443 : accept }"],
        findings.Status.OK),
    "a chain of its own": (["add chain inet filter ours",
                            "add rule inet filter ours tcp dport 8443 counter accept",
                            "add rule inet filter input meta l4proto tcp jump ours"],
                           findings.Status.OK),
    "refused by name": (["add rule inet filter input tcp dport 8443 reject",
                         "add rule inet filter input tcp dport 8443 accept"],
                        findings.Status.FAILED),
    "one network alone": (
        ["add rule inet filter input ip saddr 192.0.2.0/24 tcp dport 8443 accept"],
        findings.Status.WARNING),
    "a rate": (["add rule inet filter input tcp dport 8443 limit rate 10/second accept"],
               findings.Status.WARNING),
    "another interface alone": (
        ["add rule inet filter input iifname eth7 tcp dport 8443 accept"],
        findings.Status.WARNING),
}  # fmt: skip


@needs_nft
@pytest.mark.parametrize("case", RULES)
def test_rules_as_nft_itself_prints_them_are_understood(network: Network, case: str) -> None:
    commands, status = RULES[case]
    for command in ("add table inet filter", INPUT, *commands):
        network.nft(command)
    assert network.judged().status is status


@pytest.fixture
def tree(tmp_path: pathlib.Path) -> installed_tree.Tree:
    made = installed_tree.install(tmp_path / "m")
    made.join(connectivity="listen", port=PORT)
    return made


def _ufw(tree: installed_tree.Tree, *, enabled: str = "yes") -> None:
    (tree.root / "etc/ufw").mkdir()
    (tree.root / "etc/default").mkdir()
    (tree.root / "etc/ufw/ufw.conf").write_text(f"ENABLED={enabled}\nLOGLEVEL=low\n")
    (tree.root / "etc/default/ufw").write_text('DEFAULT_INPUT_POLICY="DROP"\n')
    (tree.root / "etc/ufw/user.rules").write_text(
        "### RULES ###\n\n### tuple ### allow tcp 22 0.0.0.0/0 any 0.0.0.0/0 in\n"
    )


def test_ufw_is_named_with_its_own_command(tree: installed_tree.Tree) -> None:
    _ufw(tree)
    found = tree.look()["firewall.8443"]
    assert (found.status, found.command) == (findings.Status.FAILED, "sudo ufw allow 8443/tcp")
    assert found.facts["firewall"] == "ufw"


def test_an_ufw_that_is_off_says_nothing(tree: installed_tree.Tree) -> None:
    _ufw(tree, enabled="no")
    assert tree.look()["firewall"].status is findings.Status.SKIPPED


def test_firewalld_is_named_with_its_own_command(tree: installed_tree.Tree) -> None:
    tree.program(
        "firewall-cmd",
        "#!/bin/sh\ncase $1 in --list-all) printf 'public (active)\\n  target: default\\n"
        "  services: ssh\\n  ports: 22/tcp\\n';; esac\n",
    )
    found = tree.look()["firewall.8443"]
    assert found.status is findings.Status.FAILED
    assert (found.command or "").startswith("sudo firewall-cmd --permanent --add-port=8443/tcp")


def test_a_firewalld_that_does_not_run_is_not_asked_further(tree: installed_tree.Tree) -> None:
    tree.program("firewall-cmd", "#!/bin/sh\nexit 252\n")
    assert tree.look()["firewall"].status is findings.Status.SKIPPED


def test_an_nft_that_may_not_look_is_skipped_with_its_reason(tree: installed_tree.Tree) -> None:
    tree.program("nft", "#!/bin/sh\necho 'Operation not permitted' >&2\nexit 1\n")
    found = tree.look()["firewall"]
    assert found.status is findings.Status.SKIPPED
    assert "Operation not permitted" in found.detail


def test_a_node_that_dials_out_needs_no_port(tmp_path: pathlib.Path) -> None:
    made = installed_tree.install(tmp_path / "m")
    made.join()
    assert "No port of this role" in made.look()["firewall"].detail
