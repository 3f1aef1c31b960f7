"""How systemd sees the units: asked once for all of them, within a limit, and judged unit by unit.

A unit that ended by itself is of the class of its exit code, as everywhere: 75 may pass by itself,
6 names what a person must do, and `203/EXEC` is an interpreter that is gone.
"""

import pathlib
from collections.abc import Iterator, Mapping, Sequence

from installer.checkup import around as around_kit
from wire_protocol import findings, problems

_PROPERTIES = (
    "Id", "LoadState", "ActiveState", "SubState", "UnitFileState", "Result", "ExecMainStatus",
    "ExecMainCode", "NRestarts", "NeedDaemonReload", "ConditionResult", "StatusText",
    "FragmentPath", "DropInPaths",
)  # fmt: skip
_EXEC_FAILED = "203"
_IS_ON = ("enabled", "enabled-runtime", "static", "indirect", "alias", "generated")
_WORKS = ("active", "activating", "reloading")

States = Mapping[str, Mapping[str, str]]
Found = tuple[findings.Finding, ...]


def has_systemd(around: around_kit.Around) -> bool:
    """Whether systemd is what runs this machine, as its own programs find out."""
    return around.under("/run/systemd/system").is_dir()


def ask(around: around_kit.Around, units: Sequence[str]) -> States:
    """The properties of each unit by its name; raises `CannotLook`."""
    said = around.run("systemctl", "show", f"--property={','.join(_PROPERTIES)}", "--", *units)
    if said.code != 0:
        raise around_kit.CannotLook(
            f"systemctl show ended with {said.code}: {said.err.strip()[:200] or 'it said nothing'}."
        )
    return parse(said.out)


def parse(text: str) -> dict[str, dict[str, str]]:
    """Blocks of `Name=value` with an empty line between units."""
    found: dict[str, dict[str, str]] = {}
    for block in text.split("\n\n"):
        pairs = (line.partition("=") for line in block.splitlines() if "=" in line)
        properties = {name: value for name, _, value in pairs}
        if properties.get("Id"):
            found[properties["Id"]] = properties
    return found


def judge(unit: str, states: States, *, wanted_on: bool, waits: str | None) -> findings.Finding:
    """One unit: loaded, on, and working, or what to run.

    `waits` says why the unit may rightly be inactive now, for one that is started by another.
    """
    state = states.get(unit, {"LoadState": "not-found"})
    return (
        _of_loading(unit, state)
        or _of_failed(unit, state)
        or _of_enabling(unit, state, wanted_on=wanted_on)
        or _of_running(unit, state, waits=waits)
    )


def _name(unit: str) -> str:
    return f"unit.{unit}"


_LOADING = {
    "not-found": ("systemd does not know it.", "sudo systemctl daemon-reload"),
    "masked": ("It is masked.", "sudo systemctl unmask {unit}"),
}


def _of_loading(unit: str, state: Mapping[str, str]) -> findings.Finding | None:
    how = state.get("LoadState", "loaded")
    if how == "loaded":
        return None
    text, command = _LOADING.get(
        how, (f"systemd cannot read it ({how}).", "systemd-analyze verify {unit}")
    )
    return findings.needs_operator(
        _name(unit), text, command=command.format(unit=unit), facts=state
    )


def _of_enabling(
    unit: str, state: Mapping[str, str], *, wanted_on: bool
) -> findings.Finding | None:
    if not wanted_on or state.get("UnitFileState") in _IS_ON:
        return None
    return findings.needs_operator(
        _name(unit),
        f"It is {state.get('UnitFileState') or 'not enabled'}, so it does not come back after a "
        "reboot.",
        command=f"sudo systemctl enable --now {unit}",
        facts=state,
    )


def _of_running(unit: str, state: Mapping[str, str], *, waits: str | None) -> findings.Finding:
    if state.get("ActiveState") in _WORKS:
        return _of_working(_name(unit), state)
    if waits is not None:
        return findings.ok(_name(unit), f"Inactive: {waits}.", facts=state)
    return findings.needs_operator(
        _name(unit),
        "It does not run: somebody stopped it.",
        command=f"sudo systemctl start {unit}",
        facts=state,
    )


def _comes_back(state: Mapping[str, str]) -> bool:
    return state.get("SubState") == "auto-restart"


def _of_working(name: str, state: Mapping[str, str]) -> findings.Finding:
    if state.get("NeedDaemonReload") == "yes":
        return findings.warning(
            name,
            "Its file has changed since systemd read it.",
            command="sudo systemctl daemon-reload",
            facts=state,
        )
    more = [path for path in state.get("DropInPaths", "").split() if path]
    added = f", changed by {', '.join(more)}" if more else ""
    said = f" It says: {state['StatusText']}." if state.get("StatusText") else ""
    text = f"{state.get('ActiveState')} ({state.get('SubState')}){added}.{said}"
    return findings.ok(name, text, facts=state)


def _of_failed(unit: str, state: Mapping[str, str]) -> findings.Finding | None:
    """By the class of its exit code; None where it has not failed."""
    again = _comes_back(state)
    if state.get("ActiveState") != "failed" and not again:
        return None
    name, log = _name(unit), f"journalctl -u {unit} -n 50"
    result, code = state.get("Result", ""), state.get("ExecMainStatus", "")
    ended = result == "exit-code" or again
    if ended and code == _EXEC_FAILED:
        return findings.needs_operator(
            name,
            "Its program could not be started (203/EXEC): its interpreter or a file is gone.",
            command="enlist doctor   (the findings python and hashes say which)",
            facts=state,
        )
    if ended and code == str(problems.Exit.NEEDS_OPERATOR.value):
        return findings.needs_operator(
            name,
            "It ended with exit code 6 and waits for you; its last line says for what.",
            command=f"{log}; sudo systemctl reset-failed {unit}; sudo systemctl start {unit}",
            facts=state,
        )
    what = f"exit code {code}" if ended else result or "unknown"
    if again or (ended and code == str(problems.Exit.TEMPORARY.value)):
        times = state.get("NRestarts") or "?"
        return findings.transient(
            name, f"It ended ({what}) and is started again (restart {times}).", command=log,
            facts=state,
        )  # fmt: skip
    return findings.permanent(
        name, f"It failed ({what}) and is not started again.", command=log, facts=state
    )


def listing(states: States) -> str:
    """The states as text, for a support archive."""
    return "\n".join(_lines(states))


def _lines(states: States) -> Iterator[str]:
    for unit, properties in states.items():
        yield f"[{unit}]"
        for name in _PROPERTIES:
            if properties.get(name):
                yield f"{name}={properties[name]}"
        yield ""


def unit_file(around: around_kit.Around, unit: str) -> pathlib.Path:
    """Where a unit of ours lies."""
    return around.under(f"/etc/systemd/system/{unit}")
