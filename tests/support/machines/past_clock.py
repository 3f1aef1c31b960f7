"""A wall clock far in the past for all that is started on a machine, by a small C library."""

import pathlib
import shutil
import subprocess
import time

SOURCE = pathlib.Path(__file__).with_name("past_clock.c")


def why_not() -> str | None:
    """Why the library cannot be made here; None where it can."""
    return None if shutil.which("cc") else "moving a machine's clock needs a C compiler: gcc"


def build(folder: pathlib.Path) -> pathlib.Path:
    """Compiles it into the folder, to be bound into the machine."""
    library = folder / "past_clock.so"
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o", str(library), str(SOURCE)],
        check=True,
        capture_output=True,
        timeout=60,
    )
    return library


def environment(library: str, *, seconds_since_1970: int) -> dict[str, str]:
    """What a process needs so that its clock shows about that time."""
    return {
        "LD_PRELOAD": library,
        "PAST_CLOCK_SECONDS": str(int(time.time()) - seconds_since_1970),
    }
