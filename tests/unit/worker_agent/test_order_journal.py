"""What the Agent keeps of orders: numbers, stages, results, within bounds."""

import dataclasses
import datetime
import pathlib
import stat

import pytest

from wire_protocol import orders
from worker_agent.orders import journal
from worker_agent.settings import documents

NOW = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)
Stage = journal.Stage


def entry(sequence: int, stage: journal.Stage = Stage.TAKEN, **more: object) -> journal.Entry:
    made = journal.Entry(
        number=(1, sequence), kind="renew", content={"why": "x"}, expires_at=NOW, stage=stage
    )
    return dataclasses.replace(made, **more)  # type: ignore[arg-type]


def with_entries(*entries: journal.Entry) -> journal.Journal:
    made = journal.Journal()
    for one in entries:
        made = made.taken(one)
    return made


def test_what_is_written_is_read_again_and_private(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "orders.json"
    assert journal.read(path) == journal.Journal()
    made = with_entries(
        entry(1, Stage.DONE, detail="Fine.", is_told=True), entry(2, Stage.BEGUN), entry(3)
    )
    journal.write(path, made)
    assert journal.read(path) == made
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_orders_are_done_one_after_the_other_by_their_numbers() -> None:
    made = with_entries(entry(1), entry(2), entry(3))
    first = made.first(Stage.TAKEN)
    assert first is not None
    assert first.number == (1, 1)
    made = made.changed(dataclasses.replace(first, stage=Stage.DONE))
    following = made.first(Stage.TAKEN)
    assert following is not None
    assert (following.number, made.last, made.waiting) == ((1, 2), (1, 3), 2)


def test_a_result_is_told_until_it_was_heard() -> None:
    made = with_entries(entry(1, Stage.FAILED, detail="No."), entry(2, Stage.BEGUN))
    untold = made.untold()
    assert untold is not None
    assert untold.result == orders.Result(epoch=1, sequence=1, is_done=False, detail="No.")
    assert made.changed(dataclasses.replace(untold, is_told=True)).untold() is None


def test_what_is_begun_has_no_result() -> None:
    assert entry(1, Stage.BEGUN).result is None
    assert entry(1, Stage.TAKEN).result is None


def test_the_latest_results_are_kept_and_what_waits_is_never_pushed_out() -> None:
    made = with_entries(
        entry(1), *[entry(number, Stage.DONE) for number in range(2, journal.MOST_ENDED + 12)]
    )
    assert made.find((1, 1)) is not None
    assert made.find((1, 11)) is None
    assert len(made.entries) == journal.MOST_ENDED + 1
    assert made.last == (1, journal.MOST_ENDED + 11)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        '{"file_version": 1}',
        '{"file_version": 1, "epoch": 1, "sequence": 1, "orders": [{"epoch": 1}]}',
        '{"file_version": 1, "epoch": -1, "sequence": 1, "orders": []}',
        '{"file_version": 2, "epoch": 1, "sequence": 1, "orders": []}',
    ],
)
def test_a_file_that_is_no_journal_is_damaged_and_never_read_as_none(
    content: str, tmp_path: pathlib.Path
) -> None:
    path = tmp_path / "orders.json"
    path.write_text(content)
    path.chmod(0o600)
    with pytest.raises(documents.Damaged):
        journal.read(path)
