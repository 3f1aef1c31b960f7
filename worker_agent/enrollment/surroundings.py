"""What a join needs from outside, so that a test hands in its own."""

import dataclasses
import random
from collections.abc import Callable, Mapping

from runtime_kit import clock as clock_kit


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """Clock, chance, environment, and two ways to tell a person something."""

    clock: clock_kit.Clock
    chance: random.Random
    environment: Mapping[str, str]
    warn: Callable[[str], None]
    say: Callable[[str], None]
