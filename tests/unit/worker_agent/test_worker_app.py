"""The Agent's parts without a network: anchors that follow the clock, the trust file, the log."""

import datetime
import io
import json
import logging
import pathlib
import random
import ssl

import pytest
from cryptography import x509

from runtime_kit import clock as clock_kit
from tests.support import held_sets, imaginary_platform
from wire_protocol import ids, signing, statements, trust
from worker_agent.app import anchors, keeper, listening, logs, parts
from worker_agent.identity import own
from worker_agent.settings import failures, paths, trust_file
from worker_agent.trust import refresh

NOW = datetime.datetime(2026, 6, 1, 12, tzinfo=datetime.UTC)
DAY = datetime.timedelta(days=1)
OLD = imaginary_platform.TrustKey(not_before=NOW - 300 * DAY, not_after=NOW + 5 * DAY)
NEXT = imaginary_platform.TrustKey(not_before=NOW + DAY, not_after=NOW + 366 * DAY)


def signed_set(*keys: imaginary_platform.TrustKey, serial: int = 1) -> trust.Held:
    content = statements.Statement(
        platform_id=ids.PlatformId("plt_1"),
        epoch=1,
        serial=serial,
        issued_at=NOW,
        trust_keys=tuple(key.public for key in keys),
        enrollment_pins=(held_sets.PIN,),
        gateway_pins=(),
        enrollment_url=None,
        gateway_urls=(),
    ).to_bytes()
    signature = statements.Signature(
        key_id=keys[0].public.key_id,
        signature=signing.sign(keys[0].private, content, context=signing.TRUST_CONTEXT),
    )
    signed = statements.SignedStatement(content=content, signatures=(signature,))
    return trust.Held(signed=signed, statement=statements.parse_statement(content))


@pytest.fixture
def clock() -> clock_kit.ManualClock:
    return clock_kit.ManualClock(NOW)


@pytest.fixture
def where(tmp_path: pathlib.Path) -> paths.Paths:
    found = paths.Paths(folder=tmp_path / "worker")
    found.folder.mkdir(mode=0o700)
    own.ensure(found, node_id=ids.NodeId("web-1"), addresses=(), now=NOW, warn=print)
    trust_file.write(found.trust, signed_set(OLD, NEXT))
    return found


def subjects(context: ssl.SSLContext) -> set[str]:
    """The names of the anchors in a context."""
    return {
        x509.load_der_x509_certificate(der).subject.rfc4514_string()
        for der in context.get_ca_certs(binary_form=True)
    }


def name(key: imaginary_platform.TrustKey) -> str:
    return key.name.rfc4514_string()


def test_only_keys_valid_now_are_anchors_and_a_window_that_opens_or_ends_changes_that(
    where: paths.Paths, clock: clock_kit.ManualClock
) -> None:
    trusted = anchors.Anchors(where, held=signed_set(OLD, NEXT), clock=clock)
    assert subjects(trusted.context()) == {name(OLD)}
    clock.advance(2 * DAY.total_seconds())
    assert subjects(trusted.context()) == {name(OLD), name(NEXT)}
    clock.advance(4 * DAY.total_seconds())
    assert subjects(trusted.context()) == {name(NEXT)}


def test_a_context_is_made_once_for_the_same_keys(
    where: paths.Paths, clock: clock_kit.ManualClock
) -> None:
    trusted = anchors.Anchors(where, held=signed_set(OLD), clock=clock)
    assert trusted.context() is trusted.context()


def test_without_a_key_valid_now_everybody_is_refused(
    where: paths.Paths, clock: clock_kit.ManualClock
) -> None:
    trusted = anchors.Anchors(where, held=signed_set(OLD), clock=clock)
    clock.advance(30 * DAY.total_seconds())
    context = trusted.context()
    assert subjects(context) == set()
    assert context.verify_mode is ssl.CERT_REQUIRED


def test_every_context_speaks_tls_1_3_alone(
    where: paths.Paths, clock: clock_kit.ManualClock
) -> None:
    context = anchors.Anchors(where, held=signed_set(OLD), clock=clock).context()
    assert context.minimum_version is ssl.TLSVersion.TLSv1_3
    assert context.num_tickets == 0


def kept(
    where: paths.Paths, *, clock: clock_kit.ManualClock
) -> tuple[keeper.Keeper, anchors.Anchors]:
    trusted = anchors.Anchors(where, held=signed_set(OLD), clock=clock)
    keeping = keeper.Keeper(
        where, trusted=trusted, clock=clock, chance=random.Random(1), environment={}
    )
    return keeping, trusted


def test_a_trust_file_written_by_another_command_is_taken_over(
    where: paths.Paths, clock: clock_kit.ManualClock
) -> None:
    keeping, trusted = kept(where, clock=clock)
    trust_file.write(where.trust, signed_set(OLD, NEXT, serial=2))
    keeping.look()
    assert trusted.held.statement.serial == 2


@pytest.mark.parametrize("content", [b"", b"{", b'{"file_version": 1}', None])
def test_a_trust_file_that_is_damaged_or_gone_changes_nothing_in_memory(
    where: paths.Paths, clock: clock_kit.ManualClock, content: bytes | None
) -> None:
    keeping, trusted = kept(where, clock=clock)
    before = trusted.held
    where.trust.unlink()
    if content is not None:
        where.trust.touch(mode=0o600)
        where.trust.write_bytes(content)
    keeping.look()
    assert trusted.held is before


def test_an_older_trust_file_is_not_taken_over(
    where: paths.Paths, clock: clock_kit.ManualClock
) -> None:
    keeping, trusted = kept(where, clock=clock)
    trusted.replace(signed_set(OLD, serial=9))
    trust_file.write(where.trust, signed_set(OLD, NEXT, serial=2))
    keeping.look()
    assert trusted.held.statement.serial == 9


async def test_a_refresh_that_fails_as_nobody_foresaw_is_told_and_tried_again(
    where: paths.Paths,
    clock: clock_kit.ManualClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def broken(*_arguments: object, **_more: object) -> refresh.Refreshed:
        raise LookupError("by a stranger's answer")

    monkeypatch.setattr(refresh, "refresh", broken)
    keeping, trusted = kept(where, clock=clock)
    before = trusted.held
    waits = [await keeping._once() for _ in range(4)]
    assert trusted.held is before
    assert min(waits[2:]) >= 60
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"] * 4


def test_an_error_is_logged_by_its_kind_and_place_and_with_debug_by_its_message_too() -> None:
    record = logging.LogRecord("a", logging.ERROR, __file__, 1, "Broken", (), None)
    try:
        int("hunter2")
    except ValueError as error:
        record.exc_info = (type(error), error, error.__traceback__)
    for form in (logs.JsonLines, logs.Readable):
        assert "hunter2" not in form().format(record)
        assert "ValueError" in form().format(record)
        assert "Traceback" in form(debug=True).format(record)


def test_strangers_who_knock_fill_one_line_a_minute(
    where: paths.Paths, clock: clock_kit.ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    keeping, _ = kept(where, clock=clock)
    knocks = listening.Knocks(keeping, clock=clock)
    unknown = ssl.SSLCertVerificationError(1, "unable to get local issuer certificate")
    unknown.verify_message = "unable to get local issuer certificate"
    for _ in range(600):
        knocks.failed(unknown, "192.0.2.9")
        knocks.failed(ssl.SSLError(1, "no certificate"), "192.0.2.9")
        clock.advance(0.25)
    assert [record.getMessage() for record in caplog.records] == [
        "A client's certificate is by no trust key held here"
    ] * 3


def test_a_machine_that_has_not_joined_is_told_the_command(tmp_path: pathlib.Path) -> None:
    with pytest.raises(failures.NeedsOperator) as raised:
        parts.load(paths.Paths(folder=tmp_path))
    assert str(raised.value).endswith(f"enlist worker join - --data-dir {tmp_path}")
    assert raised.value.exit_code == 6


def test_a_log_line_is_one_json_object_with_its_fields() -> None:
    stream = io.StringIO()
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    try:
        logs.set_up(stream)
        logger = logging.getLogger("a.test")
        logs.info(logger, "Agent ready", node_id="web-1", port=8443)
        logger.warning("A part of the program died", extra={"part": "trust-refresh"})
        try:
            int("no\nsuch")
        except ValueError:
            logger.exception("Broken")
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["event"] for line in lines] == [
        "Agent ready",
        "A part of the program died",
        "Broken",
    ]
    assert (lines[0]["node_id"], lines[0]["port"], lines[0]["level"]) == ("web-1", 8443, "info")
    assert lines[1]["part"] == "trust-refresh"
    assert lines[2]["fault"] == "ValueError"
    assert __file__ in lines[2]["frames"][-1]


def test_on_a_terminal_a_log_line_is_made_for_reading() -> None:
    record = logging.LogRecord("a", logging.INFO, __file__, 1, "Agent ready", (), None)
    record.created = NOW.timestamp()
    record.enlist_fields = {"node_id": "web-1"}
    assert logs.Readable().format(record) == "12:00:00 info    Agent ready  node_id=web-1"
