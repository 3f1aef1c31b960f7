"""When "it is not there" may be believed, after nobody knew whether an order was carried out.

One row of numbers a provider (`contract.LookupRules`) says how many clean answers over which time
it takes. A clean answer saw all pages of every zone; an error, a partial page or a changed
permission is none. Only what carries this installation's id and this operation's id is ever ours:
a name that matches proves nothing, and nor does it that nothing was made: where tags come after the
machine, one of our very name without any may still get them.
"""

import dataclasses
import datetime
from typing import Final

from platform_server.cloud import attempts
from provisioning import contract, outcomes, providers

CALL: Final = providers.TimeLimits().longest_change
"""A create call that was cut off, or is not sent yet by an engine that stood still, may still be
at work for that long: it follows the limits that drivers are opened with."""


@dataclasses.dataclass(frozen=True, slots=True)
class Found:
    """It is there. `others` carry the same ids: to be taken away, never to be used."""

    instance: contract.Instance
    others: tuple[contract.Instance, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Absent:
    """It is proved not to be there."""


@dataclasses.dataclass(frozen=True, slots=True)
class Unsettled:
    """Nothing is known yet; so many clean answers in a row found nothing."""

    clean_answers: int


def judge(
    sightings: contract.Sightings,
    *,
    attempt: attempts.Attempt,
    rules: contract.LookupRules,
    now: datetime.datetime,
) -> Found | Absent | Unsettled:
    """What one more look-up of this attempt says."""
    mine = sorted(
        (one for one in sightings.instances if is_mine(one, attempt=attempt)),
        key=lambda one: (one.created_at or now, one.ref),
    )
    if mine:
        return Found(mine[0], tuple(mine[1:]))
    name = attempt.request.name
    is_anothers = attempt.outcome == outcomes.Outcome.EXISTS_FOREIGN.value  # so it was refused
    unmarked = not is_anothers and any(
        one.owner is None and one.name == name for one in sightings.instances
    )
    if not sightings.is_complete or unmarked:
        return Unsettled(0)
    clean = attempt.clean_answers + 1
    since = attempt.doubted_at or now
    sent = attempt.sent_at or now
    is_over = not rules.settle or now - sent >= CALL
    if clean >= rules.clean_answers and now - since >= rules.settle and is_over:
        return Absent()
    return Unsettled(clean)


def is_mine(instance: contract.Instance, *, attempt: attempts.Attempt) -> bool:
    """Whether it carries our installation's id and this operation's, and this attempt's."""
    owner, wanted = instance.owner, attempt.request.owner
    return owner is not None and (
        (owner.installation, owner.operation, owner.attempt)
        == (wanted.installation, wanted.operation, wanted.attempt)
    )
