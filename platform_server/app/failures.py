"""Why the Platform does not start, with the exit code that says so."""

from wire_protocol import problems


class CannotStart(Exception):
    """The Platform does not start: one sentence on what is wrong, one on what to do."""

    def __init__(self, message: str, *, exit_code: problems.Exit) -> None:
        super().__init__(message)
        self.exit_code = int(exit_code)
