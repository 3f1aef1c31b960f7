"""What a run of `enlist` inside a test leaves behind."""

import dataclasses
import json
from collections.abc import Callable
from typing import Any


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output, which must be exactly one document."""
        return json.loads(self.out)


Enlist = Callable[..., Done]
