"""How a handler refuses: by raising `Refusal` with a code of `wire_protocol.problems`.

Not for faults of ours: any other exception becomes `internal`, with the request id in the log.
"""

from collections.abc import Mapping

from wire_protocol import problems


class Refusal(Exception):
    """The call is refused; the caller reads the code, a person reads the detail.

    `members` are further fields of the problem document (RFC 9457, section 3.2), such as the two
    versions of `worker-newer`.
    """

    def __init__(
        self,
        code: str,
        detail: str,
        *,
        retry_after_seconds: int | None = None,
        members: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(detail)
        if code not in problems.CODES:
            raise ValueError(f"The problem code {code!r} is not listed in wire_protocol.problems.")
        self.code = code
        self.detail = detail
        self.retry_after_seconds = retry_after_seconds
        self.members = dict(members or {})


def invalid(field: str, detail: str) -> Refusal:
    """A 422 that names the field at fault."""
    return Refusal("invalid", detail, members={"field": field})
