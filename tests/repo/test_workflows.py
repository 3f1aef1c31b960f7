"""The workflows: read as YAML, actions pinned by commit, scripts clean for shellcheck."""

import pathlib
import re
import subprocess
import sys
from typing import Any

import pytest
import yaml

from tests.repo import project

WORKFLOWS = [name for name in project.files() if name.startswith(".github/workflows/")]
_PINNED = re.compile(r"[\w.-]+/[\w./-]+@[0-9a-f]{40}")
_EXPRESSION = re.compile(r"\$\{\{.*?\}\}")


def read(name: str) -> dict[Any, Any]:
    found = yaml.safe_load(project.text(name))
    assert isinstance(found, dict)
    return found


def steps(name: str) -> list[dict[str, Any]]:
    return [step for job in read(name)["jobs"].values() for step in job["steps"]]


def test_there_is_a_workflow_that_releases_a_tag() -> None:
    # YAML 1.1 takes the bare word "on" for a truth value.
    assert read(".github/workflows/release.yml")[True]["push"]["tags"]


@pytest.mark.parametrize("name", WORKFLOWS)
def test_rights_are_stated_and_every_job_ends(name: str) -> None:
    workflow = read(name)
    assert workflow["permissions"] != "write-all"
    assert all(job["timeout-minutes"] <= 60 for job in workflow["jobs"].values())


@pytest.mark.parametrize("name", WORKFLOWS)
def test_every_action_is_pinned_by_its_commit(name: str) -> None:
    used = [step["uses"] for step in steps(name) if "uses" in step]
    assert [action for action in used if not _PINNED.fullmatch(action)] == []


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_job_that_holds_a_secret_runs_no_development_package(name: str) -> None:
    jobs = read(name)["jobs"].values()
    trusted = [yaml.safe_dump(job) for job in jobs if "secrets." in yaml.safe_dump(job)]
    assert trusted
    assert [job for job in trusted if "scripts/check" in job or "scripts/test" in job] == []


@pytest.mark.parametrize("name", WORKFLOWS)
def test_no_script_is_put_together_from_what_others_may_write(name: str) -> None:
    scripts = [step["run"] for step in steps(name) if "run" in step]
    assert [script for script in scripts if _EXPRESSION.search(script)] == []


@pytest.mark.parametrize("name", WORKFLOWS)
def test_shellcheck_finds_nothing_in_the_scripts(name: str, tmp_path: pathlib.Path) -> None:
    shellcheck = pathlib.Path(sys.executable).with_name("shellcheck")
    if not shellcheck.exists():
        pytest.skip("shellcheck is not in this environment")
    files = []
    for number, step in enumerate(steps(name)):
        if "run" in step:
            files.append(tmp_path / f"step-{number}.sh")
            files[-1].write_text(f"#!/bin/bash\nset -eo pipefail\n{step['run']}\n")
    done = subprocess.run(
        [shellcheck, *files], check=False, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == ""
