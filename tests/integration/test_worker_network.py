"""Proxies, secrets in the process list, clocks that are wrong, addresses of the other family."""

import asyncio
import contextlib
import datetime
import pathlib
import socket
from collections.abc import AsyncIterator

import pytest

from tests.support import (
    certificates,
    clocks,
    connect_proxy,
    imaginary_platform,
    joining,
    machine,
    worker_command,
)
from wire_protocol import join_token
from worker_agent.identity import own
from worker_agent.settings import failures, trust_file

HOUR = datetime.timedelta(hours=1)
DAY = datetime.timedelta(days=1)


@pytest.fixture
async def platform(
    tmp_path: pathlib.Path,
) -> AsyncIterator[imaginary_platform.ImaginaryPlatform]:
    async with imaginary_platform.running(tmp_path / "platform") as running:
        yield running


@pytest.fixture
def machine_to_be(tmp_path: pathlib.Path) -> joining.Joining:
    return joining.Joining(folder=tmp_path / "worker")


async def test_a_join_goes_through_a_proxy_with_the_right_password(
    platform: imaginary_platform.ImaginaryPlatform, machine_to_be: joining.Joining
) -> None:
    async with connect_proxy.running(password=("amy", "s3cret pw")) as proxy:
        machine_to_be.environment = {"https_proxy": proxy.url(user="amy:s3cret%20pw")}
        await machine_to_be.join(platform.issue("web-1"), port=machine.free_port())
    assert proxy.tunnels == 2, "one for the pinned handshake, one for the request"


@pytest.mark.parametrize("user", ["amy:wrong", None])
async def test_a_proxy_that_asks_for_another_password_is_named_and_the_password_is_not(
    platform: imaginary_platform.ImaginaryPlatform, tmp_path: pathlib.Path, user: str | None
) -> None:
    async with connect_proxy.running(password=("amy", "right")) as proxy:
        done = await worker_command.enlist(
            *worker_command.join_arguments(tmp_path / "worker", port=machine.free_port()),
            stdin=platform.issue("web-1"),
            environment={"https_proxy": proxy.url(user=user)},
        )
    assert done.code == 6
    assert "The proxy asked for credentials (407)" in done.err
    assert "wrong" not in done.err.replace("the wrong ones", "")
    assert "Traceback" not in done.err
    assert len(proxy.asked) == 1, "a wrong password is not tried again and again"
    assert platform.asked == []


async def test_no_token_is_in_the_process_list_while_a_slow_proxy_holds_the_join(
    platform: imaginary_platform.ImaginaryPlatform, tmp_path: pathlib.Path
) -> None:
    token = platform.issue("web-1")
    secret = join_token.decode(token).token.secret_hex
    async with (
        connect_proxy.running(hesitates=True) as proxy,
        worker_command.started(
            *worker_command.join_arguments(tmp_path / "worker", port=machine.free_port()),
            stdin=token,
            environment={"https_proxy": proxy.url()},
        ) as process,
    ):
        async with asyncio.timeout(30):
            await proxy.waiting.wait()
        seen = process_list()
        assert str(tmp_path).encode() in seen, "the join was not seen at all"
        assert token.encode() not in seen
        assert secret.encode() not in seen
        proxy.open.set()
        ended = await worker_command.finish(process)
    assert ended.code == 0, ended.err


def process_list() -> bytes:
    """What any process tells of itself: arguments and environment."""
    seen = b""
    for place in pathlib.Path("/proc").glob("[0-9]*"):
        for name in ("cmdline", "environ"):
            with contextlib.suppress(OSError):  # it ended meanwhile
                seen += (place / name).read_bytes()
    return seen


async def test_a_clock_two_hours_ahead_joins_with_a_fresh_token_and_is_told(
    platform: imaginary_platform.ImaginaryPlatform, machine_to_be: joining.Joining
) -> None:
    machine_to_be.clock = clocks.ShiftedClock(ahead=2 * HOUR)
    await machine_to_be.join(
        platform.issue("web-1", expires_in=10 * datetime.timedelta(minutes=1)),
        port=machine.free_port(),
    )
    (warning,) = machine_to_be.warned
    assert "ahead of the Platform's" in warning
    assert 7190 <= int(warning.split(" is ")[1].split(" s ")[0]) <= 7230


async def test_a_clock_thirty_seconds_behind_works_the_first_time_and_the_certificate_is_older(
    platform: imaginary_platform.ImaginaryPlatform, machine_to_be: joining.Joining
) -> None:
    machine_to_be.clock = clocks.ShiftedClock(ahead=-datetime.timedelta(seconds=30))
    await machine_to_be.join(platform.issue("web-1"), port=machine.free_port())
    certificate = own.load(machine_to_be.where).certificate
    assert certificate.not_valid_before_utc < platform.now - datetime.timedelta(minutes=59)


async def test_a_machine_that_thinks_it_is_1970_joins_by_pin_and_says_once_that_dates_do_not_count(
    platform: imaginary_platform.ImaginaryPlatform, machine_to_be: joining.Joining
) -> None:
    epoch = datetime.datetime(1970, 1, 1, 0, 5, tzinfo=datetime.UTC)
    machine_to_be.clock = clocks.ShiftedClock(ahead=epoch - platform.now)
    await machine_to_be.join(platform.issue("web-1"), port=machine.free_port())
    dates = [told for told in machine_to_be.warned if "dates are not judged" in told]
    assert len(dates) == 1
    assert trust_file.read(machine_to_be.where.trust) is not None


async def test_with_a_ca_file_dates_are_judged(
    platform: imaginary_platform.ImaginaryPlatform, tmp_path: pathlib.Path
) -> None:
    authority = certificates.issue(authority=True, names=(), common_name="private")
    platform.tls_identity = certificates.issue(
        issuer=authority, not_before=platform.now - 9 * DAY, not_after=platform.now - DAY
    )
    platform.issue("web-1")
    (issued,) = platform.enrollments.values()
    ca_file = tmp_path / "ca.pem"
    ca_file.write_text(authority.pem)
    done = await worker_command.enlist(
        *("worker", "join", "--data-dir", str(tmp_path / "worker")),
        *("--platform-url", platform.url, "--node-id", "web-1", "--enrollment-token-file", "-"),
        *("--platform-ca-file", str(ca_file)),
        stdin=issued.token.text(),
    )
    assert done.code == 6
    assert "expired" in done.err
    assert platform.asked == []


async def test_by_a_ca_file_a_machine_joins_and_records_that_mode(
    platform: imaginary_platform.ImaginaryPlatform, tmp_path: pathlib.Path
) -> None:
    authority = certificates.issue(authority=True, names=(), common_name="private")
    platform.tls_identity = certificates.issue(issuer=authority)
    platform.issue("web-1")
    (issued,) = platform.enrollments.values()
    ca_file = tmp_path / "ca.pem"
    ca_file.write_text(authority.pem)
    done = await worker_command.enlist(
        *("worker", "join", "--data-dir", str(tmp_path / "worker"), "-o", "json"),
        *("--platform-url", platform.url, "--node-id", "web-1", "--enrollment-token-file", "-"),
        *("--platform-ca-file", str(ca_file)),
        stdin=issued.token.text(),
    )
    assert done.code == 0, done.err
    assert (done.document["authenticated_by"], done.document["pins"]) == ("ca-file", [])


async def test_an_address_that_leads_nowhere_is_temporary_and_names_the_host(
    machine_to_be: joining.Joining, platform: imaginary_platform.ImaginaryPlatform
) -> None:
    join = join_token.decode(platform.issue("web-1"))
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    token = join_token.encode(
        join_token.JoinToken(
            url=f"https://localhost.:{port}",
            node_id=join.node_id,
            token=join.token,
            pins=join.pins,
            trust_key_ids=join.trust_key_ids,
            expires_at=join.expires_at,
        )
    )
    with pytest.raises(failures.Temporary, match=f"localhost:{port}"):
        await machine_to_be.join(token)
