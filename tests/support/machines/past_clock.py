"""A wall clock far in the past for all that is started on a machine, until it is set right.

By a small C library that everything started there loads.
Known limit: systemd itself, started before, has the right time.
"""

import pathlib
import shutil
import subprocess
import time

SOURCE = pathlib.Path(__file__).with_name("past_clock.c")
# Where a unit with a /tmp of its own sees it too.
FOLDER = "/usr/local/lib/past-clock"
ENVIRONMENT = {
    "LD_PRELOAD": f"{FOLDER}/past_clock.so",
    "PAST_CLOCK_FILE": f"{FOLDER}/seconds",
}


class PastClock:
    """The library and the file that sets its clock, in a folder of the host."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder
        folder.chmod(0o755)  # every account of the machine's reads it
        subprocess.run(
            ["cc", "-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o",
             str(folder / "past_clock.so"), str(SOURCE)],
            check=True, capture_output=True, timeout=60,
        )  # fmt: skip

    @property
    def option(self) -> str:
        """What binds it into a machine."""
        return f"--bind-ro={self._folder}:{FOLDER}"

    def show(self, *, seconds_since_1970: int) -> None:
        """From now on the clock shows about that time."""
        self._set(int(time.time()) - seconds_since_1970)

    def set_right(self) -> None:
        """From now on the clock is right."""
        self._set(0)

    def _set(self, seconds_back: int) -> None:
        aside = self._folder / "seconds.new"
        aside.write_text(str(seconds_back))
        aside.rename(self._folder / "seconds")


def why_not() -> str | None:
    """Why the library cannot be made here; None where it can."""
    return None if shutil.which("cc") else "moving a machine's clock needs a C compiler: gcc"
