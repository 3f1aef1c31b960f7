"""The project's own files, as the checks of this folder see them.

What git tracks or would add; without git, everything but what .gitignore keeps out.
"""

import functools
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGES = (
    "wire_protocol",
    "runtime_kit",
    "provisioning",
    "platform_server",
    "worker_agent",
    "enlist",
    "operator_cli",
    "installer",
    "root_helper",
)
_LEFT_OUT = (".git", ".venv", ".enlist", ".cache", ".mypy_cache", ".ruff_cache", ".hypothesis")
_LEFT_OUT_AT_THE_ROOT = ("build", "dist")


@functools.cache
def files() -> tuple[str, ...]:
    """Every file of the project, by its path from the root."""
    try:
        # The tests may run as another user than the one who cloned.
        listed = subprocess.run(
            ["git", "-c", "safe.directory=*", "ls-files", "-z", "-co", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            check=True,
            timeout=30,
        ).stdout.decode()
        names = [name for name in listed.split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        names = [
            str(path.relative_to(ROOT))
            for path in ROOT.rglob("*")
            if path.is_file()
            and not any(part.startswith(_LEFT_OUT) for part in path.relative_to(ROOT).parts)
            and path.relative_to(ROOT).parts[0] not in _LEFT_OUT_AT_THE_ROOT
            and "__pycache__" not in path.parts
            and not any(part.endswith(".egg-info") for part in path.parts)
        ]
    return tuple(sorted(name for name in names if (ROOT / name).is_file()))


def text(name: str) -> str:
    """The file's text; what is not UTF-8 is replaced."""
    return (ROOT / name).read_text(encoding="utf-8", errors="replace")


def modules(*folders: str) -> list[str]:
    """The Python files in these folders."""
    starts = tuple(folder + "/" for folder in folders)
    return [name for name in files() if name.endswith(".py") and name.startswith(starts)]


def docs() -> list[str]:
    """The pages in docs/."""
    return [name for name in files() if name.startswith("docs/") and name.endswith(".md")]
