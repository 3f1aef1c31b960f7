"""Who may open a session as a node: one row a sentence, and a walk over whole stories."""

import dataclasses

import pytest

from platform_server.gateway import generation
from platform_server.gateway.generation import Known, Proof, Verdict
from wire_protocol import ids, session

CONFIRMED = 7
ME, OTHER = "process-a", "process-b"


def hello(given: int, **changes: object) -> session.Hello:
    fields: dict[str, object] = {
        "node_id": ids.NodeId("web-1"),
        "generation": given,
        "epoch": 1,
        "version": "1.0.0",
        "instance": ME,
        "purpose": session.Purpose.SESSION,
        "statement": (1, 1),
        **changes,
    }
    return session.Hello(**fields)  # type: ignore[arg-type]


def known(**changes: object) -> Known:
    fields: dict[str, object] = {
        "removed": False,
        "generation": CONFIRMED,
        "adopted_epoch": 0,
        "running_instance": None,
        **changes,
    }
    return Known(**fields)  # type: ignore[arg-type]


def decide(
    opening: session.Hello, state: Known, *, proof: Proof = Proof.PRESENT, epoch: int = 1
) -> generation.Decision:
    return generation.decide(
        opening, known=state, proof=proof, epoch=epoch, platform_version="1.0.0"
    )


WELCOMES = {
    "the confirmed generation with nobody there": (hello(7), known(), 8),
    "the same process again, its former link just died": (
        hello(7),
        known(running_instance=ME),
        8,
    ),
    "one ahead, its confirmation was lost": (hello(8), known(), 8),
    "one ahead, the same process, its session still stands": (
        hello(8),
        known(running_instance=ME),
        8,
    ),
    "a node that has never had a session": (hello(1), known(generation=1), 2),
    "an older machine": (hello(7, version="0.9.0"), known(), 8),
}

REFUSALS = {
    "one behind, as a copy made before the last session": (
        hello(6),
        known(),
        session.Refusal.GENERATION_CONFLICT,
    ),
    "far behind, as a disk set back to an old backup": (
        hello(0),
        known(),
        session.Refusal.GENERATION_CONFLICT,
    ),
    "behind, even while nobody else is there": (
        hello(6),
        known(running_instance=None),
        session.Refusal.GENERATION_CONFLICT,
    ),
    "further ahead than any lost confirmation explains": (
        hello(9),
        known(),
        session.Refusal.GENERATION_CONFLICT,
    ),
    "removed, whatever it says": (
        hello(7),
        known(removed=True),
        session.Refusal.NODE_REMOVED,
    ),
    "removed, before its version is judged": (
        hello(7, version="9.0.0"),
        known(removed=True),
        session.Refusal.NODE_REMOVED,
    ),
    "newer than the Platform": (
        hello(7, version="1.0.1"),
        known(),
        session.Refusal.WORKER_NEWER,
    ),
    "an errand that is behind": (
        hello(6, purpose=session.Purpose.ERRAND),
        known(),
        session.Refusal.GENERATION_CONFLICT,
    ),
}


@pytest.mark.parametrize("case", WELCOMES)
def test_is_welcome_and_given_the_next_generation(case: str) -> None:
    opening, state, granted = WELCOMES[case]
    assert decide(opening, state) == generation.Decision(
        verdict=Verdict.WELCOME, generation=granted
    )


@pytest.mark.parametrize("case", REFUSALS)
def test_is_refused_and_told_why(case: str) -> None:
    opening, state, refusal = REFUSALS[case]
    assert decide(opening, state) == generation.Decision(verdict=Verdict.REFUSE, refusal=refusal)


@pytest.mark.parametrize("given", [7, 8])
def test_another_process_waits_for_the_running_one_to_be_asked_whatever_number_it_brings(
    given: int,
) -> None:
    decision = decide(hello(given, instance=OTHER), known(running_instance=ME))
    assert decision == generation.Decision(verdict=Verdict.ASK_RUNNING, generation=8)


def test_after_a_restore_a_running_session_is_asked_before_another_process_is_adopted() -> None:
    state = known(running_instance=ME, adopted_epoch=1)
    decision = decide(hello(12, instance=OTHER), state, epoch=2)
    assert decision == generation.Decision(verdict=Verdict.ASK_RUNNING, generation=13, adopts=True)
    assert decide(hello(12), state, epoch=2).verdict is Verdict.WELCOME


def test_the_certificate_that_was_replaced_opens_nothing_but_the_answer_that_it_is_a_copy() -> None:
    for given in (6, 7, 8):
        for purpose in session.Purpose:
            decision = decide(hello(given, purpose=purpose), known(), proof=Proof.FORMER)
            assert decision.refusal is session.Refusal.GENERATION_CONFLICT


def test_the_next_certificate_opens_as_the_present_one_does() -> None:
    assert decide(hello(7), known(), proof=Proof.NEXT) == decide(hello(7), known())


def test_an_errand_never_raises_the_generation_and_never_replaces() -> None:
    for running in (None, ME, OTHER):
        decision = decide(hello(7, purpose=session.Purpose.ERRAND), known(running_instance=running))
        assert decision == generation.Decision(verdict=Verdict.WELCOME, generation=7)


def test_after_a_restore_a_generation_ahead_is_adopted_once_an_epoch() -> None:
    first = decide(hello(12), known(adopted_epoch=1), epoch=2)
    assert first == generation.Decision(verdict=Verdict.WELCOME, generation=13, adopts=True)
    second = decide(hello(40), known(generation=13, adopted_epoch=2), epoch=2)
    assert second.refusal is session.Refusal.GENERATION_CONFLICT
    next_restore = decide(hello(40), known(generation=13, adopted_epoch=2), epoch=3)
    assert next_restore.adopts


def test_a_node_that_joined_since_the_restore_has_nothing_to_adopt() -> None:
    decision = decide(hello(12), known(adopted_epoch=2), epoch=2)
    assert decision.refusal is session.Refusal.GENERATION_CONFLICT


def test_before_any_restore_nothing_is_adopted() -> None:
    assert decide(hello(12), known(adopted_epoch=0), epoch=1).verdict is Verdict.REFUSE


@dataclasses.dataclass
class _Machine:
    """What the Agent keeps: it stores before it confirms."""

    stored: int
    instance: str


def _open(machine: _Machine, state: Known, *, confirm_arrives: bool) -> Known | None:
    """One opening; gives what the Platform knows then, or None where it refused."""
    decision = decide(hello(machine.stored, instance=machine.instance), state)
    if decision.verdict is not Verdict.WELCOME:
        return None
    machine.stored = decision.generation
    if not confirm_arrives:
        return dataclasses.replace(state, running_instance=None)
    return dataclasses.replace(
        state, generation=decision.generation, running_instance=machine.instance
    )


@pytest.mark.parametrize("lost", [1, 2, 20])
def test_lost_confirmations_never_lock_a_node_out(lost: int) -> None:
    machine, state = _Machine(stored=7, instance=ME), known()
    for arrives in [*[False] * lost, True]:
        after = _open(machine, state, confirm_arrives=arrives)
        assert after is not None
        state = after
    assert (machine.stored, state.generation) == (8, 8)


def test_a_copy_is_found_out_however_often_the_original_has_been_back() -> None:
    original = _Machine(stored=7, instance=ME)
    copy = _Machine(stored=7, instance=OTHER)
    state = _open(original, known(), confirm_arrives=True)
    assert state is not None
    assert _open(copy, state, confirm_arrives=True) is None
    again = _open(original, state, confirm_arrives=True)
    assert again is not None
    assert _open(copy, again, confirm_arrives=True) is None
    assert original.stored == again.generation


def test_where_the_copy_came_first_it_is_the_original_that_is_refused_by_name() -> None:
    original, copy = _Machine(stored=7, instance=ME), _Machine(stored=7, instance=OTHER)
    state = _open(copy, known(), confirm_arrives=True)
    assert state is not None
    refused = decide(hello(original.stored), state)
    assert refused.refusal is session.Refusal.GENERATION_CONFLICT
