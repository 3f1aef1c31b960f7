"""The three kinds of failure, and the exceptions of everything here that reaches the network.

For: one word a caller can act on. ``transient``: trying again may help, with waits in between.
``permanent``: trying again will not help. ``needs-operator``: a person has to change something
first; the sentence says what.
Not for: exit codes and HTTP statuses, which belong to the programs.
Known limit: a network cannot be asked what is wrong with it, so a blocked port and a machine that
is down are both transient.
"""

import enum
from typing import ClassVar


class Kind(enum.StrEnum):
    """What to do about a failure (Design, rule 14)."""

    TRANSIENT = "transient"
    PERMANENT = "permanent"
    NEEDS_OPERATOR = "needs-operator"


class NetworkFailure(Exception):
    """Something outside this process did not answer as it must; the text is one plain sentence."""

    kind: ClassVar[Kind] = Kind.TRANSIENT
