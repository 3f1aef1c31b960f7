"""The next key and certificate beside the present ones, and every way to be cut off between."""

import datetime
import os
import pathlib

import pytest

from runtime_kit import crash_points
from wire_protocol import ids
from worker_agent.identity import own, replacing, states
from worker_agent.settings import failures, paths

NOW = datetime.datetime(2026, 6, 1, 12, tzinfo=datetime.UTC)
NODE = ids.NodeId("web-1")


class Killed(BaseException):
    """The process ends here."""


@pytest.fixture
def where(tmp_path: pathlib.Path) -> paths.Paths:
    found = paths.Paths(folder=tmp_path / "worker")
    found.folder.mkdir(mode=0o700)
    own.ensure(found, node_id=NODE, addresses=("192.0.2.1",), now=NOW, warn=print)
    return found


def prepare(where: paths.Paths, *, new_key: bool | None) -> own.Identity:
    later = NOW + datetime.timedelta(days=61)
    return replacing.prepare(
        where, node_id=NODE, addresses=("192.0.2.1",), now=later, days=90, new_key=new_key
    )


@pytest.mark.parametrize("new_key", [True, False])
def test_the_next_pair_takes_the_place_and_the_present_one_is_kept_aside(
    where: paths.Paths, *, new_key: bool
) -> None:
    before = own.load(where)
    made = prepare(where, new_key=new_key)
    assert own.load(where).certificate == before.certificate, "it is not in use yet"
    replacing.promote(where)
    after = own.load(where)
    assert after.certificate == made.certificate
    assert (after.pin != before.pin) is new_key
    former = replacing.candidates(where)[-1]
    assert (former.name, former.pin) == ("former", before.pin)
    assert replacing.certificate_of(former) == before.certificate
    assert not where.next_certificate.exists()
    assert not where.next_key.exists()


@pytest.mark.parametrize("new_key", [True, False])
def test_preparing_and_promoting_may_be_repeated(where: paths.Paths, *, new_key: bool) -> None:
    first = prepare(where, new_key=new_key)
    assert prepare(where, new_key=new_key).certificate == first.certificate
    assert prepare(where, new_key=None).certificate == first.certificate
    replacing.promote(where)
    replacing.promote(where)
    assert own.load(where).certificate == first.certificate
    assert len(replacing.candidates(where)) == 2


@pytest.mark.parametrize(("first", "then"), [(True, False), (False, True)])
def test_another_kind_that_is_wanted_replaces_what_was_prepared(
    where: paths.Paths, *, first: bool, then: bool
) -> None:
    before = own.load(where)
    prepare(where, new_key=first)
    made = prepare(where, new_key=then)
    assert (made.pin != before.pin) is then
    replacing.promote(where)
    assert own.load(where).certificate == made.certificate
    assert not where.next_key.exists()


def test_only_the_last_three_former_pairs_are_kept(where: paths.Paths) -> None:
    pins = [own.load(where).pin]
    for _ in range(6):
        prepare(where, new_key=True)
        replacing.promote(where)
        pins.append(own.load(where).pin)
    found = replacing.candidates(where)
    assert [one.pin for one in found] == list(reversed(pins))[:4]
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in where.identity.iterdir())


def test_a_next_pair_that_is_old_itself_is_made_anew(where: paths.Paths) -> None:
    first = prepare(where, new_key=False)
    much_later = NOW + datetime.timedelta(days=400)
    made = replacing.prepare(
        where, node_id=NODE, addresses=(), now=much_later, days=90, new_key=None
    )
    assert made.certificate != first.certificate


@pytest.mark.parametrize("content", [b"", b"no certificate", b"-----BEGIN CERTIFICATE-----\n"])
def test_a_damaged_next_certificate_counts_for_nothing(where: paths.Paths, content: bytes) -> None:
    prepare(where, new_key=True)
    where.next_certificate.write_bytes(content)
    assert replacing.find_next(where) is None
    assert [one.name for one in replacing.candidates(where)] == ["present"]
    replacing.promote(where)
    assert own.look(where).state is states.State.CERTIFIED


def test_a_damaged_former_pair_counts_for_nothing(where: paths.Paths) -> None:
    prepare(where, new_key=True)
    replacing.promote(where)
    where.formers[0].write_bytes(b"")
    assert [one.name for one in replacing.candidates(where)] == ["present"]


POINTS = sorted(
    name
    for name in crash_points.declared()
    if name.startswith("renew.") and name not in ("renew.asked", "renew.granted")
)


@pytest.mark.parametrize("new_key", [True, False])
@pytest.mark.parametrize("point", POINTS)
def test_cut_off_at_any_point_some_pair_stands_and_the_same_again_finishes(
    where: paths.Paths, monkeypatch: pytest.MonkeyPatch, *, point: str, new_key: bool
) -> None:
    before = own.load(where)

    def reach(name: str) -> None:
        if name == point:
            raise Killed

    def renew() -> own.Identity:
        made = prepare(where, new_key=new_key)
        replacing.promote(where)
        return made

    with monkeypatch.context() as patch:
        patch.setattr(crash_points, "reach", reach)
        try:
            renew()
            reached = False
        except Killed:
            reached = True
    assert reached or not new_key, "every point is one of a renewal with a new key"
    present = own.load(where)
    proofs = replacing.candidates(where)
    assert [one.pin for one in proofs if one.name == "present"] == [present.pin]
    known = {one.pin for one in proofs}
    assert before.pin in known, "the Platform may know the old pair alone"
    replacing.finish(where)
    assert own.load(where).pin == present.pin
    assert not own.is_half_replaced(where)
    renew()
    assert own.look(where).state is states.State.CERTIFIED
    assert (own.load(where).pin != before.pin) is new_key


def test_a_certificate_of_another_key_alone_is_still_damage(where: paths.Paths) -> None:
    other = paths.Paths(folder=where.folder.with_name("other"))
    other.folder.mkdir(mode=0o700)
    own.ensure(other, node_id=NODE, addresses=(), now=NOW, warn=print)
    where.certificate.write_bytes(other.certificate.read_bytes())
    with pytest.raises(failures.NeedsOperator, match="another key"):
        replacing.candidates(where)


def test_a_full_disk_leaves_the_present_pair(
    where: paths.Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = own.load(where)

    def full(*_arguments: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space left"):
        prepare(where, new_key=True)
    monkeypatch.undo()
    assert own.load(where).certificate == before.certificate


def test_a_former_pair_that_cannot_be_read_is_told_of_once(
    where: paths.Paths, caplog: pytest.LogCaptureFixture
) -> None:
    prepare(where, new_key=True)
    replacing.promote(where)
    assert [one.name for one in replacing.candidates(where)] == ["present", "former"]
    assert caplog.messages == []
    where.formers[0].chmod(0o644)
    where.formers[1].write_bytes(b"x" * (own.MAX_BYTES + 1))
    where.formers[1].chmod(0o600)
    for _ in range(3):
        assert [one.name for one in replacing.candidates(where)] == ["present"]
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    told = [vars(record)["path"] for record in caplog.records]
    assert told == [str(where.formers[0]), str(where.formers[1])]
