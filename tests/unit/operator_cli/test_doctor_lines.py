"""What people see of findings, and that nothing that looks like a secret passes into an archive."""

import asyncio
import io
import pathlib
import sys
from collections.abc import Iterator, Sequence

import pytest

from operator_cli import checkup_lines, checkups, support_archive
from runtime_kit import mends, side_by_side
from wire_protocol import findings

FOUND = (
    findings.ok("files", "Well.", facts={"free": 1}),
    findings.skipped("port", "Not here."),
    findings.warning("dns", "Slow.", command="look"),
    findings.needs_operator("agent", "Does not run.\x1b[31m", command="enlist agent"),
    findings.transient("gateway", "Silent."),
)
REPORT = checkups.Report(
    title="worker w-1", own=FOUND, found=tuple(one.within("worker") for one in FOUND)
)


@pytest.fixture(autouse=True)
def _unicode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="utf-8"))


def _plain(*, verbose: bool) -> list[str]:
    return [line.replace("\x1b[0m", "") for line in checkup_lines.of([REPORT], verbose=verbose)]


def test_each_finding_is_a_line_with_its_mark_and_what_is_wrong_has_its_command() -> None:
    lines = "\n".join(_plain(verbose=False))
    for part in ("files    Well.", "dns      Slow.", "Run: look", "Does not run", "(needs you)",
                 "Run: enlist agent", "Silent. (may pass by itself)"):  # fmt: skip
        assert part in lines
    assert "Not here." not in lines
    assert "free" not in lines
    assert lines.endswith("2 failed, 1 to look at.")


def test_verbose_tells_what_was_skipped_and_measured() -> None:
    lines = "\n".join(_plain(verbose=True))
    assert "Not here." in lines
    assert "free: 1" in lines


def test_what_another_side_said_commands_no_terminal() -> None:
    assert "\x1b[31m" not in "\n".join(_plain(verbose=True)).replace("\x1b[31m✗", "✗")


def test_a_mend_that_fails_stops_no_other_and_says_why() -> None:
    made: list[str] = []

    def fail() -> None:
        raise mends.CannotMend("no right to")

    told: list[checkups.Done] = []
    done = checkups.mend_all(
        [
            mends.Mend(action="chmod", target="a", detail="to 0600", apply=fail),
            mends.Mend(
                action="chmod", target="b", detail="to 0600", apply=lambda: made.append("b")
            ),
        ],
        tell=told.append,
    )
    assert made == ["b"]
    assert [one.to_wire()["detail"] for one in done] == ["failed: no right to", "to 0600"]
    assert told == done


class _Broken:
    """A checkup one question of which breaks, and one of which hangs."""

    place = "worker"
    title = "worker"

    def jobs(self) -> list[side_by_side.Job[checkups.Found]]:
        async def fail() -> checkups.Found:
            raise RuntimeError("a secret may stand here")

        async def hang() -> checkups.Found:
            await asyncio.Event().wait()
            return ()

        return [
            side_by_side.Job(name="files", work=fail, seconds=1.0),
            side_by_side.Job(name="gateway", work=hang, seconds=0.01),
        ]

    def mends(self, found: Sequence[findings.Finding], /) -> list[mends.Mend]:
        del found
        return []

    def parts(self) -> Iterator[tuple[str, bytes]]:
        return iter(())


def test_a_check_that_breaks_is_a_fault_of_ours_and_takes_no_other_with_it(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    (report,) = asyncio.run(checkups.run([_Broken()]))
    broken, hung = report.found
    assert (broken.name, hung.name) == ("worker.files", "worker.gateway")
    assert broken.report_id is not None
    assert "secret" not in broken.detail
    assert (hung.kind, hung.detail) == ("transient", "No answer within 0.01 s.")
    assert findings.exit_code([broken]) == 1


SECRETS = {
    "an enrollment token": f"ent_{'0a' * 8}_{'1b' * 32}_{'2c' * 4}",
    "an API token": f"enk_{'0a' * 8}_{'1b' * 32}_{'2c' * 4}",
    "a join token": "enj_" + "Ab3_-" * 20,
    "a master key": f"emk_{'0a' * 32}",
    "a private key": "-----BEGIN EC PRIVATE KEY-----\nabc\n-----END EC PRIVATE KEY-----",
    "a private key cut off": "-----BEGIN PRIVATE KEY-----\nabcdef",
    "a key of age": "AGE-SECRET-KEY-1" + "QPZRY9X8" * 7,
    "a password in a URL": "user:pass-word-9",
}


@pytest.mark.parametrize("what", SECRETS)
def test_what_looks_like_a_secret_becomes_dots(what: str) -> None:
    secret = SECRETS[what]
    text = f"before postgresql://{secret}@host/x after" if "URL" in what else f"a {secret}"
    clean = support_archive.scrub(text)
    assert secret not in clean
    assert support_archive.DOTS in clean


def test_what_is_public_stays_readable() -> None:
    text = f"pin sha256:{'ab' * 32} https://p.example:8444 node w-1 ent_ id {'0a' * 8}"
    assert support_archive.scrub(text) == text


class _Same:
    """A place that would mend what another place would mend as well."""

    place, title = "worker", "worker w-1"

    def jobs(self) -> Sequence[side_by_side.Job[checkups.Found]]:
        return ()

    def mends(self, found: Sequence[findings.Finding], /) -> Sequence[mends.Mend]:
        del found
        return [
            mends.Mend(action="chmod", target="/data", detail="to 0700", apply=lambda: None),
            mends.Mend(action="chmod", target="/data/a", detail="to 0600", apply=lambda: None),
        ]

    def parts(self) -> Iterator[tuple[str, bytes]]:
        return iter(())


def test_what_two_places_would_mend_the_same_is_done_once() -> None:
    possible = checkups.possible([_Same(), _Same()], [REPORT, REPORT])
    assert [mend.target for mend in possible] == ["/data", "/data/a"]
