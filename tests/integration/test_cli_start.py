"""What a start of the command line and of the SDK loads: the figures of the bench hang on it."""

import subprocess
import sys

import pytest

from tests.support import real_platform

HEAVY = {"asyncio", "httpx", "pydantic", "cryptography", "rich", "yaml", "aiohttp", "ssl"}
STARTS = {
    "importing the SDK": ("import enlist", HEAVY | {"h11", "click", "json"}),
    "the help": (
        "from operator_cli import main; main.run(['--help'])",
        HEAVY | {"h11", "json", "socket", "tomllib"},
    ),
    "a question to the local socket": (
        "from operator_cli import main; main.run(['--data-dir', '/nowhere', 'nodes', 'list'])",
        HEAVY,
    ),
    "the config": ("from operator_cli import main; main.run(['config', 'list'])", HEAVY | {"h11"}),
}


@pytest.mark.parametrize("case", STARTS.values(), ids=STARTS)
def test_loads_nothing_heavy(case: tuple[str, set[str]]) -> None:
    code, unwanted = case
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nprint('LOADED', *sys.modules)"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env=real_platform.clean_environment(),
    )
    loaded = set(done.stdout.rpartition("LOADED ")[2].split())
    assert "sys" in loaded
    assert loaded & unwanted == set()
