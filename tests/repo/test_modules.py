"""The shape of the Python files: a story at the top, a budget of lines, no waiting in tests."""

import ast
import collections
import pathlib
import re
from collections.abc import Iterator

from tests.repo import project

MOST_LINES = 500
# A longer file gives its reason in its docstring, in a sentence beginning so.
REASON = "Long because"
# Names under which everything and nothing fits.
VAGUE = {"utils", "util", "common", "helpers", "helper", "misc", "base", "manager"}
# Bounded waits for other processes are written once, here.
WAITS = "tests/support/"
# Other files of the tests that wait for real, each with its reason; asyncio.sleep(0) is no wait.
WAITING: dict[str, str] = {
    "tests/faults/test_store_faults.py": "a store locked for 20 s by a stranger is the trial",
    "tests/integration/test_serve.py": "another process works, and nobody here could be told",
    "tests/integration/test_probe.py": "the store's thread gets half a millisecond to answer",
}
# The places that read the clock or wait, each with its reason.
CLOCKS = {
    "runtime_kit/clock.py": "what everything else is given",
    "installer/waiting.py": "the installer runs without an event loop; bounded",
    "provisioning/first_boot/program.py": "runs on the new machine, with nothing of ours; bounded",
    "provisioning/local/launching.py": "blocking, as root, in a thread or a helper; bounded",
    "runtime_kit/http1/pool.py": "a socket tells nobody when it appears; bounded by the caller",
    "operator_cli/moments.py": "the clock brings asyncio, which is half the time of a command",
    "platform_server/app/store_lock.py": "before the engine's event loop exists; bounded",
    "platform_server/endpoints/http_server.py": "who has just connected may still speak; bounded",
    "platform_server/endpoints/measures.py": "the moment a process started; no rule hangs on it",
    "platform_server/store/postgres.py": "milliseconds between tries after a conflict; bounded",
    "platform_server/store/postgres_signals.py": "a moment before a lost connection is made anew",
    "platform_server/store/sqlite_writer.py": "a thread of its own, off the event loop; bounded",
    "platform_server/store/sqlite_files.py": "before the event loop has work; bounded",
}


def _shipped() -> list[str]:
    return project.modules(*project.PACKAGES, "bench", "scripts")


def _called(name: str) -> Iterator[tuple[int, str, ast.Call]]:
    """Every call of a dotted name in the file."""
    for node in ast.walk(ast.parse(project.text(name))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            yield node.lineno, ast.unparse(node.func), node


def test_every_module_opens_with_its_story() -> None:
    bare = [name for name in _shipped() if not ast.get_docstring(ast.parse(project.text(name)))]
    assert bare == []


def test_no_module_is_longer_than_its_budget_without_a_reason() -> None:
    long = [
        f"{name}: {lines} lines"
        for name in project.modules(*project.PACKAGES, "bench", "tests")
        if (lines := project.text(name).count("\n")) > MOST_LINES
        and REASON not in (ast.get_docstring(ast.parse(project.text(name))) or "")
    ]
    assert long == []


def test_no_two_test_files_outside_packages_share_a_name() -> None:
    """Pytest imports them by their bare names; a second one stops the whole collection."""
    bare = [
        pathlib.PurePath(name)
        for name in project.modules("tests")
        if not (project.ROOT / name).with_name("__init__.py").exists()
    ]
    counted = collections.Counter(path.name for path in bare if path.name != "conftest.py")
    assert sorted(name for name, times in counted.items() if times > 1) == []


def test_no_module_has_a_vague_name() -> None:
    assert [name for name in _shipped() if set(re.split(r"[/.]", name)) & VAGUE] == []


def test_the_small_tools_do_not_know_what_a_node_is() -> None:
    found = [
        f"{name}:{number}: {line.strip()}"
        for name in project.modules("runtime_kit")
        for number, line in enumerate(project.text(name).splitlines(), start=1)
        if re.search(r"\bnodes?\b", line, re.IGNORECASE)
    ]
    assert found == []


def test_the_files_that_wait_are_still_there() -> None:
    assert [name for name in {**WAITING, **CLOCKS} if not (project.ROOT / name).exists()] == []


def test_no_test_waits_for_time_to_pass() -> None:
    found = [
        f"{name}:{line}: {call}"
        for name in project.modules("tests")
        if name not in WAITING and not name.startswith(WAITS)
        for line, call, node in _called(name)
        if call in {"time.sleep", "asyncio.sleep"} and ast.unparse(node).split("(")[1] != "0)"
    ]
    assert found == []


def test_nothing_shipped_reads_the_clock_or_waits_but_by_the_clock_it_was_given() -> None:
    asking = {
        "time.time",
        "time.sleep",
        "asyncio.sleep",
        "datetime.datetime.now",
        "datetime.datetime.utcnow",
        "datetime.now",
    }
    found = [
        f"{name}:{line}: {call}"
        for name in project.modules(*project.PACKAGES)
        if name not in CLOCKS
        for line, call, _ in _called(name)
        if call in asking
    ]
    assert found == []
