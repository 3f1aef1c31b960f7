"""WireGuard's own forms: what `wg` is given, what it prints, and what programs complain of."""

import datetime
import ipaddress
import json
import pathlib

import pytest

from runtime_kit import secret
from runtime_kit.wireguard import backends, config, device, keys, programs

PRIVATE = secret.Secret("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=")
WANTED = config.Wanted(
    name="mesh0",
    owner="test",
    private_key=PRIVATE,
    listen_port=51820,
    address=ipaddress.ip_interface("fd00::1/64"),
    mtu=1280,
)
PEER = config.Peer(
    public_key=keys.public_key_of(PRIVATE),
    allowed=(ipaddress.ip_network("fd00::2"),),
    endpoint=config.Endpoint(address=ipaddress.ip_address("2001:db8::1"), port=51820),
    keepalive_seconds=25,
)
DUMP = (
    f"{PRIVATE.reveal()}\t{PEER.public_key}\t51820\toff\n"
    f"{PEER.public_key}\t(none)\t[2001:db8::1]:51820\tfd00::2/128,10.0.0.2/32\t1700000000\t180\t92\t25\n"
    "other=\t(none)\t(none)\t(none)\t0\t0\t0\toff\n"
)


def test_a_configuration_is_written_as_wg_reads_it() -> None:
    assert config.render(WANTED, peers=[PEER]).decode() == (
        "[Interface]\n"
        f"PrivateKey = {PRIVATE.reveal()}\n"
        "ListenPort = 51820\n"
        "[Peer]\n"
        f"PublicKey = {PEER.public_key}\n"
        "AllowedIPs = fd00::2/128\n"
        "Endpoint = [2001:db8::1]:51820\n"
        "PersistentKeepalive = 25\n"
    )


def test_a_dump_is_read_and_its_private_key_dropped() -> None:
    state = config.parse_dump(DUMP.encode())
    assert state.public_key == PEER.public_key
    first, second = state.peers.values()
    assert first.endpoint == "[2001:db8::1]:51820"
    assert first.allowed == ("fd00::2/128", "10.0.0.2/32")
    assert first.handshake_at == datetime.datetime(2023, 11, 14, 22, 13, 20, tzinfo=datetime.UTC)
    assert (second.endpoint, second.allowed, second.handshake_at) == (None, (), None)
    assert PRIVATE.reveal() not in repr(state)


@pytest.mark.parametrize("raw", [b"", b"one\ttwo\n", b"a\tb\t1\toff\nshort\tline\n", b"\xff\xfe"])
def test_a_dump_of_another_form_is_refused(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r"field|codec"):
        config.parse_dump(raw)


COMPLAINTS = {
    "RTNETLINK answers: Operation not permitted": programs.NotPermitted,
    "Error: Unknown device type.": programs.Unsupported,
    "RTNETLINK answers: File exists": programs.NameTaken,
    "ERROR: (wg0) 2026/01/01 UAPI listen error: unix socket in use": programs.NameTaken,
    "ERROR: (wg0) Failed to create TUN device: operation not permitted": programs.NotPermitted,
    "Cannot find device": programs.Fault,
    "": programs.Fault,
}


@pytest.mark.parametrize("text", COMPLAINTS)
def test_a_programs_complaint_becomes_a_fault_that_says_what_to_do(text: str) -> None:
    banner = "┌──────┐\n│ Running wireguard-go is not required │\n└──────┘\n"
    found = programs.of_complaint(f"{banner}{text}\n", program="ip", code=2)
    assert type(found) is COMPLAINTS[text]
    assert "─" not in str(found)


def test_a_complaint_with_control_characters_is_not_repeated() -> None:
    assert "\x1b" not in str(programs.of_complaint("\x1b[31mred\n", program="ip", code=1))


@pytest.mark.parametrize(
    ("line", "may"),
    [
        ("CapEff:\t000001ffffffffff", True),
        ("CapEff:\t0000000000000000", False),
        ("CapEff:\t0000000000001000", True),
        ("CapPrm:\t000001ffffffffff", False),
    ],
)
def test_the_right_to_make_interfaces_is_read_from_the_kernel(line: str, may: bool) -> None:  # noqa: FBT001
    assert programs.may_administer_networks(f"Name:\tx\n{line}\n") is may


class Scripted:
    """A runner that answers by the first words, and keeps what it was asked."""

    def __init__(self, links: list[dict[str, str]], *, fails: dict[str, Exception]) -> None:
        self.links = links
        self.fails = fails
        self.ran: list[str] = []

    async def __call__(self, *command: str, stdin: bytes = b"") -> bytes:
        del stdin
        line = " ".join(command)
        self.ran.append(line)
        for start, fault in self.fails.items():
            if line.startswith(start):
                raise fault
        return json.dumps(self.links).encode() if line == "ip -j link show" else b"[]"


async def test_where_the_kernel_has_none_wireguard_go_is_taken() -> None:
    run = Scripted([], fails={"ip link add": programs.Unsupported("ip: Unknown device type.")})
    backend = backends.of_this_machine(run)
    await device.ensure(WANTED, backend=backend, run=run)
    assert backend.name == "wireguard-go"
    assert "wireguard-go mesh0" in run.ran


async def test_where_there_is_none_at_all_that_is_said_with_what_to_install() -> None:
    run = Scripted(
        [],
        fails={
            "ip link add": programs.Unsupported("ip: Unknown device type."),
            "wireguard-go": programs.ProgramMissing("wireguard-go is not installed."),
        },
    )
    with pytest.raises(programs.Unsupported, match="install wireguard-go"):
        await device.ensure(WANTED, backend=backends.of_this_machine(run), run=run)


async def test_rights_that_are_missing_are_not_taken_for_a_missing_kind() -> None:
    run = Scripted([], fails={"ip link add": programs.NotPermitted("ip: not permitted")})
    with pytest.raises(programs.NotPermitted):
        await device.ensure(WANTED, backend=backends.of_this_machine(run), run=run)
    assert "wireguard-go mesh0" not in run.ran


async def test_an_interface_of_another_owner_whose_mark_begins_alike_is_not_taken() -> None:
    run = Scripted([{"ifname": "mesh0", "ifalias": "test2"}], fails={})
    made = await device.ensure(WANTED, backend=backends.Kernel(run), run=run)
    assert made.name == "mesh1"


async def test_where_every_name_is_taken_that_is_said() -> None:
    run = Scripted([], fails={"ip link add": programs.NameTaken("ip: File exists")})
    with pytest.raises(device.SomebodyElses, match="mesh0"):
        await device.ensure(WANTED, backend=backends.Kernel(run), run=run)


@pytest.mark.parametrize("path", ["", ".", ":", "bin:.", "relative"])
def test_no_program_is_taken_from_where_the_process_stands(
    path: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = tmp_path / "relative" / "no-such-wg"
    for one in (tmp_path / "no-such-wg", planted):
        one.parent.mkdir(exist_ok=True)
        one.write_text("#!/bin/sh\n")
        one.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", path)
    assert programs.find("no-such-wg") is None
