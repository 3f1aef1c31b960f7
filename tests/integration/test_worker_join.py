"""The real `worker join` against a small Platform that behaves: what it does, writes, refuses."""

import asyncio
import dataclasses
import json
import pathlib
import socket
import stat
from collections.abc import AsyncIterator

import pytest

from tests.support import imaginary_platform, machine, worker_command
from wire_protocol import enrollment, join_token, pins
from worker_agent.identity import certificates, own
from worker_agent.settings import paths


@pytest.fixture
async def platform(
    tmp_path: pathlib.Path,
) -> AsyncIterator[imaginary_platform.ImaginaryPlatform]:
    async with imaginary_platform.running(tmp_path / "platform") as running:
        yield running


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "worker"


async def test_a_join_ends_with_what_was_written_and_the_one_start_command(
    platform: imaginary_platform.ImaginaryPlatform, folder: pathlib.Path
) -> None:
    port = machine.free_port()
    done = await worker_command.enlist(
        *worker_command.join_arguments(folder, port=port), stdin=platform.issue("web-1")
    )
    assert (done.code, done.err) == (0, "")
    assert done.out.endswith(f"Start its Agent with:\n  enlist agent --data-dir {folder}\n")
    for name in ("identity/key.pem", "trust.json", "join.json", "agent.json"):
        assert str(folder / name) in done.out
        assert (folder / name).stat().st_size > 0


async def test_json_is_one_document_and_tells_the_same(
    platform: imaginary_platform.ImaginaryPlatform, folder: pathlib.Path
) -> None:
    port = machine.free_port()
    done = await worker_command.enlist(
        *worker_command.join_arguments(folder, port=port), "-o", "json",
        stdin=platform.issue("web-1"),
    )  # fmt: skip
    said = done.document
    assert said["node_id"] == "web-1"
    assert said["reachable"] is True
    assert said["command"] == f"enlist agent --data-dir {folder}"
    assert said["pins"] == [platform.tls_identity.pin]


async def test_what_is_sent_has_the_form_of_the_wire_and_the_token_in_the_body_alone(
    platform: imaginary_platform.ImaginaryPlatform, folder: pathlib.Path
) -> None:
    port = machine.free_port()
    await worker_command.enlist(
        *worker_command.join_arguments(folder, port=port), "--label", "rack=b4",
        stdin=platform.issue("web-1"),
    )  # fmt: skip
    ((path, body),) = platform.asked
    assert path == "/api/v1/enroll"
    request = enrollment.EnrollRequest.model_validate_json(body)
    assert request.url == f"https://127.0.0.1:{port}"
    assert request.reported_labels == {"rack": "b4"}


async def test_nothing_is_open_to_others_from_the_first_byte_under_any_umask(
    platform: imaginary_platform.ImaginaryPlatform, folder: pathlib.Path
) -> None:
    seen: dict[str, set[int]] = {}
    async with worker_command.started(
        *worker_command.join_arguments(folder, port=machine.free_port()),
        stdin=platform.issue("web-1"),
        umask=0,
    ) as process:
        ending = asyncio.ensure_future(process.wait())
        while not ending.done():
            look_at_modes(folder, seen=seen)
            await asyncio.sleep(0)
        assert await ending == 0
    look_at_modes(folder, seen=seen)
    assert {mode for modes in seen.values() for mode in modes if mode & 0o077} == set()
    assert len(seen) > 6, sorted(seen)


def look_at_modes(folder: pathlib.Path, *, seen: dict[str, set[int]]) -> None:
    if not folder.exists():
        return
    for path in [folder, *folder.rglob("*")]:
        try:
            mode = stat.S_IMODE(path.lstat().st_mode)
        except FileNotFoundError:
            continue  # written aside and renamed meanwhile
        seen.setdefault(path.name, set()).add(mode)


async def test_files_that_others_could_read_are_closed_with_a_warning(
    platform: imaginary_platform.ImaginaryPlatform, folder: pathlib.Path
) -> None:
    where = paths.Paths(folder=folder)
    where.identity.mkdir(parents=True)
    where.key.write_bytes(certificates.key_pem(certificates.new_key()))
    where.key.chmod(0o644)
    done = await worker_command.enlist(
        *worker_command.join_arguments(folder, port=machine.free_port()),
        stdin=platform.issue("web-1"),
    )
    assert done.code == 0
    assert f"Warning: {where.key} had mode 0644" in done.err
    assert stat.S_IMODE(where.key.stat().st_mode) == 0o600


async def test_empty_key_and_certificate_files_are_seen_for_what_they_are(
    platform: imaginary_platform.ImaginaryPlatform, folder: pathlib.Path
) -> None:
    where = paths.Paths(folder=folder)
    where.identity.mkdir(parents=True, mode=0o700)
    for path in (where.key, where.certificate):
        path.touch(mode=0o600)
    done = await worker_command.enlist(
        *worker_command.join_arguments(folder, port=machine.free_port()),
        stdin=platform.issue("web-1"),
    )
    assert done.code == 0
    assert "key.pem is empty" in done.err
    (enrolled,) = platform.enrollments.values()
    assert own.load(where).pin == enrolled.pin


async def test_a_real_key_is_never_overwritten(
    platform: imaginary_platform.ImaginaryPlatform, folder: pathlib.Path
) -> None:
    where = paths.Paths(folder=folder)
    where.identity.mkdir(parents=True, mode=0o700)
    where.key.touch(mode=0o600)
    content = certificates.key_pem(certificates.new_key())
    where.key.write_bytes(content)
    where.certificate.touch(mode=0o600)
    done = await worker_command.enlist(
        *worker_command.join_arguments(folder, port=machine.free_port()),
        stdin=platform.issue("web-1"),
    )
    assert done.code == 0
    assert where.key.read_bytes() == content


async def test_a_damaged_key_stops_the_join_before_the_token_leaves(
    platform: imaginary_platform.ImaginaryPlatform, folder: pathlib.Path
) -> None:
    where = paths.Paths(folder=folder)
    where.identity.mkdir(parents=True, mode=0o700)
    where.key.touch(mode=0o600)
    where.key.write_bytes(certificates.key_pem(certificates.new_key())[:100])
    before = worker_command.contents(folder)
    done = await worker_command.enlist(
        *worker_command.join_arguments(folder, port=machine.free_port()),
        stdin=platform.issue("web-1"),
    )
    assert done.code == 6
    assert f"mv {where.identity}" in done.err
    assert worker_command.contents(folder) == before
    assert platform.asked == []


async def test_two_machines_with_the_same_hardware_ids_are_two_nodes(
    platform: imaginary_platform.ImaginaryPlatform, tmp_path: pathlib.Path
) -> None:
    for node_id in ("twin-1", "twin-2"):
        done = await worker_command.enlist(
            *worker_command.join_arguments(tmp_path / node_id, port=machine.free_port()),
            stdin=platform.issue(node_id),
        )
        assert done.code == 0
    enrolled = {one.node_id: one.pin for one in platform.enrollments.values()}
    assert set(enrolled) == {"twin-1", "twin-2"}
    assert len(set(enrolled.values())) == 2


async def test_a_port_that_another_program_holds_stops_the_join_before_the_token_leaves(
    platform: imaginary_platform.ImaginaryPlatform, folder: pathlib.Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = await worker_command.enlist(
            *worker_command.join_arguments(folder, port=port), stdin=platform.issue("web-1")
        )
    assert done.code == 2
    assert f"Port {port} is in use" in done.err
    assert platform.asked == []


async def test_a_machine_that_cannot_be_reached_joins_with_a_warning_that_names_the_address(
    platform: imaginary_platform.ImaginaryPlatform, folder: pathlib.Path
) -> None:
    port = machine.free_port()
    platform.dial_port = machine.free_port()
    done = await worker_command.enlist(
        *worker_command.join_arguments(folder, port=port), stdin=platform.issue("web-1")
    )
    assert done.code == 0
    assert f"not reachable from the Platform at https://127.0.0.1:{port}" in done.err


async def test_without_an_address_the_node_dials_out_and_the_person_is_told_what_that_means(
    platform: imaginary_platform.ImaginaryPlatform, folder: pathlib.Path
) -> None:
    done = await worker_command.enlist(
        *worker_command.join_arguments(folder), stdin=platform.issue("web-1")
    )
    assert done.code == 0
    assert "stays `enrolled`" in done.err
    assert "--address" in done.err
    assert "url" not in json.loads(platform.asked[0][1])


async def test_flags_alone_do_what_a_join_token_does(
    platform: imaginary_platform.ImaginaryPlatform, folder: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    platform.issue("web-1")
    (issued,) = platform.enrollments.values()
    token_file = tmp_path / "token"
    token_file.write_text(f"{issued.token.text()}\n")
    fingerprint = platform.tls_identity.fingerprint.removeprefix("sha256:").upper()
    colons = ":".join(fingerprint[at : at + 2] for at in range(0, 64, 2))
    done = await worker_command.enlist(
        *("worker", "join", "--data-dir", str(folder), "-o", "json"),
        *("--platform-url", platform.url, "--node-id", "WEB-1."),
        *("--enrollment-token-file", str(token_file)),
        *("--platform-fingerprint", "sha256:" + "0" * 64),
        *("--platform-fingerprint", colons),
        *("--address", "127.0.0.1", "--port", str(machine.free_port())),
    )
    assert done.code == 0, done.err
    kept = pins.Pin(platform.tls_identity.pin)
    assert done.document["pins"] == [kept, "sha256:" + "0" * 64], "the key's pin is what is kept"


async def test_a_token_in_the_arguments_works_and_warns(
    platform: imaginary_platform.ImaginaryPlatform, folder: pathlib.Path
) -> None:
    token = platform.issue("web-1")
    done = await worker_command.enlist(
        *("worker", "join", token, "--data-dir", str(folder)),
        *("--address", "127.0.0.1", "--port", str(machine.free_port())),
    )
    assert done.code == 0
    assert "every account of this machine can read it" in done.err
    assert token not in done.err + done.out


async def test_check_says_what_would_happen_and_sends_and_writes_nothing(
    platform: imaginary_platform.ImaginaryPlatform, folder: pathlib.Path
) -> None:
    done = await worker_command.enlist(
        *worker_command.join_arguments(folder, port=machine.free_port()), "--check", "-o", "json",
        stdin=platform.issue("web-1"),
    )  # fmt: skip
    assert done.code == 0
    assert any(platform.url in change for change in done.document["changes"])
    assert not folder.exists()  # noqa: ASYNC240 - a test may look
    assert platform.asked == []


async def test_joining_again_changes_nothing_and_sends_nothing(
    platform: imaginary_platform.ImaginaryPlatform, folder: pathlib.Path
) -> None:
    token = platform.issue("web-1")
    arguments = worker_command.join_arguments(folder, port=machine.free_port())
    await worker_command.enlist(*arguments, stdin=token)
    before = worker_command.contents(folder)
    again = await worker_command.enlist(*arguments, "-o", "json", stdin=token)
    bare = await worker_command.enlist("worker", "join", "--data-dir", str(folder), "-o", "json")
    assert (again.code, again.document["already_joined"]) == (0, True)
    assert (bare.code, bare.document["address"]) == (0, again.document["address"])
    assert worker_command.contents(folder) == before
    assert len(platform.asked) == 1


@pytest.mark.parametrize(
    ("more", "named"),
    [
        (["--port", "9999"], "--port is 9999"),
        (["--address", "192.0.2.7"], "--address is 192.0.2.7"),
        (["--label", "rack=other"], "--label differs"),
        (["--platform-fingerprint", "sha256:" + "1" * 64], "--platform-fingerprint"),
        (["--platform-url", "https://other.example:8444"], "https://other.example:8444"),
        (["--node-id", "web-2"], "not web-2"),
    ],
)
async def test_a_joined_machine_refuses_what_differs_and_names_it(
    platform: imaginary_platform.ImaginaryPlatform,
    folder: pathlib.Path,
    more: list[str],
    named: str,
) -> None:
    port = machine.free_port()
    await worker_command.enlist(
        *worker_command.join_arguments(folder, port=port), stdin=platform.issue("web-1")
    )
    before = worker_command.contents(folder)
    done = await worker_command.enlist("worker", "join", "--data-dir", str(folder), *more)
    assert done.code == 4
    assert named in done.err
    assert worker_command.contents(folder) == before


async def test_another_platforms_join_token_is_a_conflict(
    platform: imaginary_platform.ImaginaryPlatform, folder: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    arguments = worker_command.join_arguments(folder, port=machine.free_port())
    await worker_command.enlist(*arguments, stdin=platform.issue("web-1"))
    async with imaginary_platform.running(tmp_path / "other") as other:
        done = await worker_command.enlist(*arguments, stdin=other.issue("web-1"))
        assert done.code == 4
        assert other.url in done.err
        assert other.asked == []


@pytest.mark.parametrize("harm", ["lax", "cut short"])
async def test_an_agent_file_that_cannot_be_read_unbinds_nobody(
    platform: imaginary_platform.ImaginaryPlatform,
    folder: pathlib.Path,
    tmp_path: pathlib.Path,
    harm: str,
) -> None:
    arguments = worker_command.join_arguments(folder, port=machine.free_port())
    await worker_command.enlist(*arguments, stdin=platform.issue("web-1"))
    where = paths.Paths(folder=folder)
    if harm == "lax":
        where.agent.chmod(0o644)
        where.join.chmod(0o644)
    else:
        where.agent.write_bytes(where.agent.read_bytes()[:40])
    before = worker_command.contents(folder)
    async with imaginary_platform.running(tmp_path / "other") as other:
        token = other.issue("web-2")
        checked = await worker_command.enlist(*arguments, "--check", stdin=token)
        assert where.agent.stat().st_mode & 0o777 == (0o644 if harm == "lax" else 0o600)
        done = await worker_command.enlist(*arguments, stdin=token)
        assert (checked.code, done.code) == (4, 4), checked.err + done.err
        assert other.asked == []
    assert "it is node web-1, not web-2" in done.err
    assert where.agent.stat().st_mode & 0o777 == 0o600, "it is closed before it is read"
    assert worker_command.contents(folder) == before


async def test_a_join_token_that_names_a_public_trust_key_leads_no_joined_machine_elsewhere(
    platform: imaginary_platform.ImaginaryPlatform, folder: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    arguments = worker_command.join_arguments(folder, port=machine.free_port())
    await worker_command.enlist(*arguments, stdin=platform.issue("web-1"))
    before = worker_command.contents(folder)
    async with imaginary_platform.running(tmp_path / "other") as other:
        named = dataclasses.replace(
            join_token.decode(other.issue("web-1")),
            trust_key_ids=(platform.keys[0].public.key_id,),
        )
        done = await worker_command.enlist(*arguments, stdin=join_token.encode(named))
        assert done.code == 4
        assert other.asked == []
    assert f"not {other.url}" in done.err
    assert worker_command.contents(folder) == before


async def test_a_new_token_for_the_same_node_enrolls_again_with_the_same_key(
    platform: imaginary_platform.ImaginaryPlatform, folder: pathlib.Path
) -> None:
    arguments = worker_command.join_arguments(folder, port=machine.free_port())
    await worker_command.enlist(*arguments, stdin=platform.issue("web-1"))
    pin = own.load(paths.Paths(folder=folder)).pin
    for turn in range(1, 4):  # removed and allowed again, three times
        done = await worker_command.enlist(*arguments, stdin=platform.issue("web-1"))
        assert done.code == 0
        assert len(platform.asked) == turn + 1
    assert {one.pin for one in platform.enrollments.values()} == {pin}


async def test_a_lost_answer_is_asked_for_again_within_the_same_command(
    platform: imaginary_platform.ImaginaryPlatform, folder: pathlib.Path
) -> None:
    platform.loses_answers = 1
    done = await worker_command.enlist(
        *worker_command.join_arguments(folder, port=machine.free_port()),
        stdin=platform.issue("web-1"),
    )
    assert done.code == 0, done.err
    assert "Trying again in" in done.err
    assert [path for path, _ in platform.asked] == ["/api/v1/enroll"] * 2
    assert platform.asked[0] == platform.asked[1]
