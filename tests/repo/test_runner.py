"""The runner of the tests keeps what it promises to them: what must not run at once does not."""

import os
import pathlib
import subprocess
import sys

from tests.repo import project

GROUPED = """
import os, pathlib, pytest

pytestmark = pytest.mark.xdist_group("together")

@pytest.mark.parametrize("number", range(12))
def test_told(number):
    with pathlib.Path("ran").open("a") as told:
        told.write(os.environ["PYTEST_XDIST_WORKER"] + "\\n")
"""


def test_tests_of_one_group_run_in_one_process(tmp_path: pathlib.Path) -> None:
    # pytest 9.2 with xdist 3.8 spread them without a word; machines and namespaces collided.
    (tmp_path / "test_grouped.py").write_text(GROUPED)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "xdist",
            "--numprocesses",
            "2",
            "--dist",
            "loadgroup",
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},  # only what it is about: quick
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    ran = (tmp_path / "ran").read_text().split()
    assert len(ran) == 12
    assert len(set(ran)) == 1


def test_every_group_is_asked_for_as_the_tests_command_runs_them() -> None:
    assert "--dist loadgroup" in project.text("scripts/test")
