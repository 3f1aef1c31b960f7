"""How an installation or a removal fails: the exit codes of interface.md, and a sentence each."""


class Failure(Exception):
    """The sentence says what happened and what to do."""

    exit_code = 1


class Misuse(Failure):
    """Wrong usage: nothing has been done."""

    exit_code = 2


class Refused(Failure):
    """Trying again will not help."""

    exit_code = 3


class Conflict(Failure):
    """What is on this machine stands against it."""

    exit_code = 4


class NotFound(Failure):
    """It is not here."""

    exit_code = 5


class NeedsOperator(Failure):
    """A person has to do something first; the sentence ends with what."""

    exit_code = 6


class Temporary(Failure):
    """Trying again may help."""

    exit_code = 75
