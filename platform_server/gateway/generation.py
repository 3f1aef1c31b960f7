"""Whether whoever opens with a node's certificate may be that node, as one pure decision.

A generation is a number that both sides keep: the Agent stores the next one before it confirms, the
Platform raises its own only then. So the one that runs is never behind, whatever answer is lost,
and a copy made of it is behind as soon as either has opened a session since:

    behind the confirmed one      a copy, or a machine set back to an old state: refused
    the confirmed one             welcome
    one ahead                     its confirmation was lost: welcome
    further ahead                 only after a restore of the Platform's store, once an epoch

Whatever number it brings, a session that stands is asked first, and its answer keeps the newcomer
out: only the process that holds that session (`instance`, which is on no disk) replaces it at once.

Known limit: of two copies that start at the same moment with nobody else there, the first to
confirm is the node. Nothing could tell them apart.
"""

import dataclasses
import enum

from wire_protocol import session, versions


class Verdict(enum.Enum):
    """What to do with the newcomer."""

    WELCOME = "welcome"  # no session stands in its way; what stands of it is replaced
    ASK_RUNNING = "ask-running"  # a session stands: only its silence makes place for this one
    REFUSE = "refuse"


class Proof(enum.Enum):
    """With which of the node's certificates the newcomer has opened."""

    PRESENT = "present"
    NEXT = "next"  # handed in for renewal and seen now for the first time
    FORMER = "former"  # replaced since: whoever still has it missed that, as a copy does


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What the Platform knows of the node at that moment."""

    removed: bool
    generation: int
    adopted_epoch: int  # the last epoch in which a generation that ran ahead was taken over
    running_instance: str | None  # of the session that stands, None where there is none


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The verdict, why a refusal, and what a welcome grants."""

    verdict: Verdict
    refusal: session.Refusal | None = None
    generation: int = 0  # to be stored by the Agent, and confirmed
    adopts: bool = False  # the generation ran ahead of a restored store


FIRST_EPOCH = 1  # no restore yet


def decide(
    hello: session.Hello, *, known: Known, proof: Proof, epoch: int, platform_version: str
) -> Decision:
    """Judges an opening. `epoch` is the Platform's; the versions must be well formed."""
    ahead = hello.generation - known.generation
    may_adopt = FIRST_EPOCH < epoch > known.adopted_epoch
    too_far = ahead > 1 and hello.purpose is session.Purpose.SESSION and not may_adopt
    refusal: session.Refusal | None = None
    if known.removed:
        refusal = session.Refusal.NODE_REMOVED
    elif versions.is_newer(hello.version, platform_version):
        refusal = session.Refusal.WORKER_NEWER
    elif ahead < 0 or too_far or proof is Proof.FORMER:
        refusal = session.Refusal.GENERATION_CONFLICT
    if refusal is not None:
        return Decision(verdict=Verdict.REFUSE, refusal=refusal)
    if hello.purpose is session.Purpose.ERRAND:
        return Decision(verdict=Verdict.WELCOME, generation=hello.generation)
    stands = known.running_instance is not None and known.running_instance != hello.instance
    return Decision(
        verdict=Verdict.ASK_RUNNING if stands else Verdict.WELCOME,
        # one ahead is stored there already: however often its confirmation is lost, it stays
        generation=hello.generation + 1 if ahead > 1 else known.generation + 1,
        adopts=ahead > 1,
    )
