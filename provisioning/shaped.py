"""Reading a success that may not hold what its provider describes: that is no answer, not a crash.

An order whose answer lacks the machine's id may have been carried out, and a list without its rows
is not an empty one; so whatever our reading trips over becomes an unknown outcome.

Known limit: a mistake of ours within such a block looks like an answer out of shape; keep to
reading in it.
"""

import contextlib
from collections.abc import Iterator

from provisioning import answers


@contextlib.contextmanager
def reading(what: str) -> Iterator[None]:
    """For the lines that read an answer; `what` names the call or the provider.

    Raises:
        outcomes.Fault: `UNKNOWN`, where a line trips over what was told.
    """
    try:
        yield
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, ArithmeticError) as fault:
        reason = f"a success out of shape, {type(fault).__name__}"
        raise answers.unanswered(what, reason) from None
