"""The Python under a release: a release holds none, it stands on the distribution's.

A distribution upgrade takes Python 3.11 away and brings 3.13; the compiled packages of a release
are for one of them. Then no command of the release starts, this one neither: it is found by the
other role's release, or by `python3 -m installer.checkup` in the release's folder of packages.
"""

import os
import pathlib
import re

from installer.checkup import around as around_kit
from installer.checkup import seen as seen_kit
from wire_protocol import findings

_VERSION = "import sys; print('%d.%d' % sys.version_info[:2])"
_FOLDER = re.compile(r"python(3\.\d{1,2})")

Found = tuple[findings.Finding, ...]


def python(seen: seen_kit.Seen) -> Found:
    """Whether the interpreter is there, starts, and is of the version that was unpacked for."""
    folder = seen.release_folder
    wanted = None if folder is None else wanted_version(folder)
    if folder is None or wanted is None:
        return (findings.skipped("python", "There is no release in use; see release."),)
    link = folder / "bin" / "python"
    real = pathlib.Path(os.path.realpath(link))
    facts: dict[str, object] = {"python": str(real), "version": wanted}
    if not real.is_file():
        return (_gone(seen, wanted=wanted, why=f"{real} is gone", facts=facts),)
    if not _is_ours(real):
        return (
            findings.skipped(
                "python", f"{real} is another account's, so it is not run here.", facts=facts
            ),
        )
    why = _unfit(real, wanted=wanted, seconds=seen.around.program_seconds)
    if why is not None:
        return (_gone(seen, wanted=wanted, why=why, facts=facts),)
    return (findings.ok("python", f"Python {wanted} at {real}.", facts=facts),)


def _unfit(real: pathlib.Path, *, wanted: str, seconds: float) -> str | None:
    try:
        said = around_kit.run_program(str(real), "-I", "-S", "-c", _VERSION, seconds=seconds)
    except around_kit.CannotLook as error:
        return f"{error}".rstrip(".")
    if said.code != 0:
        return f"{real} does not start"
    found = said.out.strip()
    return None if found == wanted else f"{real} is Python {found}"


def wanted_version(folder: pathlib.Path) -> str | None:
    """The version whose packages this release holds, as `3.11`."""
    try:
        names = [entry.name for entry in os.scandir(folder / "lib")]
    except OSError:
        return None
    found = [match[1] for name in names if (match := _FOLDER.fullmatch(name))]
    return found[0] if len(found) == 1 else None


def _gone(
    seen: seen_kit.Seen, *, wanted: str, why: str, facts: dict[str, object]
) -> findings.Finding:
    knows = () if seen.release is None else seen.release.pythons
    here = [one for one in knows if seen.around.find_program(f"python{one}") is not None]
    facts["here"] = here
    text = f"This release was put here for Python {wanted}, and {why}: nothing of it starts. " + (
        f"Installing it again unpacks it for Python {here[-1]}."
        if here
        else f"It knows {', '.join(knows) or 'no other'}, and none of these is here: install "
        "one of them first."
    )
    return findings.needs_operator("python", text, command=seen.reinstall(), facts=facts)


def _is_ours(real: pathlib.Path) -> bool:
    """Root runs no program that another account may change."""
    return all(
        info.st_uid in (0, os.geteuid()) and not info.st_mode & 0o022
        for info in (real.stat(), real.parent.stat())
    )
