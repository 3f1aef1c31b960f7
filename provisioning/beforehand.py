"""What a driver makes for a machine before it orders it: a key, a firewall.

None of it costs money, and the same order finds its own again. So a lost answer about one of them
leaves no doubt about the machine, and a refused order takes them away with it.

Known limit: what cannot be taken away in that moment carries our tags and is the sweeper's.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from provisioning import contract, outcomes

_NOTHING_MADE: Final = (
    outcomes.Outcome.NOT_DONE_PERMANENT,
    outcomes.Outcome.NOT_DONE_RETRYABLE,
    outcomes.Outcome.EXISTS_FOREIGN,
)


def not_ordered(fault: outcomes.Fault) -> outcomes.Fault:
    """The fault of making one of them: never `UNKNOWN`, since no machine was asked for."""
    if fault.outcome is not outcomes.Outcome.UNKNOWN:
        return fault
    return outcomes.Fault(
        f"The machine was not ordered yet: {fault}",
        outcome=outcomes.Outcome.NOT_DONE_RETRYABLE,
        topic=fault.topic,
        code=fault.code,
        retry_after=fault.retry_after,
    )


async def taken_back(
    refused: outcomes.Fault,
    *,
    made: Sequence[contract.Child],
    delete: Callable[[contract.Child], Awaitable[None]],
) -> outcomes.Fault:
    """The refusal of the order, after what was made for it alone was deleted."""
    if refused.outcome not in _NOTHING_MADE or refused.topic is outcomes.Topic.RATE:
        return refused  # it will be sent again, and each call more is one too many
    try:
        for one in reversed(made):
            if not one.keep:
                await delete(one)
    except outcomes.Fault as fault:
        return outcomes.Fault(
            f"{refused} What was made for it is left there: {fault}",
            outcome=refused.outcome,
            topic=refused.topic,
            code=refused.code,
            retry_after=refused.retry_after,
            link=refused.link,
            hints=refused.hints,
            ref=refused.ref,
        )
    return refused
