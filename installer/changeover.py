"""Changes the release in use: switch, restart, watch, and go back where the new one does not live.

For: the installer's update and the root helper's, so that both end the same way. A service that
starts and dies is seen at its first death; one that hangs, at the end of `READY_SECONDS`. Going
back puts the former release's units in their place as well. Identity and work are not touched:
they stand in the data directory. Killed at any point, the same command goes on: the release that
the receipt names is the last that was seen to work.
"""

import dataclasses
import enum
from typing import Protocol

from installer import layout as layout_kit
from installer import programs, switch, units, waiting
from runtime_kit import crash_points

READY_SECONDS = 40.0  # with the time to go back, within a minute
STEADY_SECONDS = 10.0
_LOOK_SECONDS = 0.25

RESTARTED = crash_points.declare(
    "install.restarted", story="The new release runs, and has not yet been watched."
)


class End(enum.StrEnum):
    """How a change of release ended."""

    CHANGED = "changed"
    WENT_BACK = "went-back"
    STUCK = "stuck"  # the new one does not live, and there is nothing to go back to, or it died too


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of it, and why where it did not go well."""

    end: End
    release: str  # in use now
    reason: str = ""


class Services(Protocol):
    """What a change of release asks of the service manager."""

    def in_use(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Those that run, or are to run, now."""
        ...

    def restart(self, name: str) -> None:
        """Stops it and starts it, waiting for neither."""
        ...

    def state(self, name: str) -> tuple[str, str]:
        """Its state and the number of its main process, as `("active", "4711")`."""
        ...

    def put_units(self, layout: layout_kit.Layout, release_id: str) -> None:
        """Puts the units of that release in their place."""
        ...

    def why(self, name: str) -> str:
        """The last it said, for people."""
        ...


def change(
    layout: layout_kit.Layout,
    *,
    to: str,
    services: Services,
    waits: waiting.Waits,
    ready_seconds: float = READY_SECONDS,
    steady_seconds: float = STEADY_SECONDS,
) -> Outcome:
    """Makes `to` the release in use if it lives; the one before otherwise."""
    before = switch.current(layout)
    if before == to:  # an interrupted change is watched once more
        before = switch.previous(layout)
    running = services.in_use(layout_kit.SERVICES[layout.role])
    watch = Watch(
        services=services, waits=waits, ready_seconds=ready_seconds, steady_seconds=steady_seconds
    )
    switch.to_release(layout, to)
    reason = _run(layout, to, running, watch)
    if not reason:
        return Outcome(end=End.CHANGED, release=to)
    if before is None:
        return Outcome(end=End.STUCK, release=to, reason=reason)
    switch.back_to(layout, before)
    again = _run(layout, before, running, dataclasses.replace(watch, steady_seconds=0))
    if again:
        return Outcome(end=End.STUCK, release=before, reason=f"{reason} Gone back: {again}")
    return Outcome(end=End.WENT_BACK, release=before, reason=reason)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """How services are looked at after a start."""

    services: Services
    waits: waiting.Waits
    ready_seconds: float = READY_SECONDS
    steady_seconds: float = STEADY_SECONDS

    def lives(self, names: tuple[str, ...]) -> str:
        """Empty when all of them came up and stayed; the reason otherwise."""
        end = self.waits.monotonic() + self.ready_seconds
        main: dict[str, str] = {}
        for name in names:
            while True:
                state, process = self.services.state(name)
                if state == "active":
                    main[name] = process
                    break
                if state not in {"activating", "deactivating", "reloading"}:
                    return f"{name} died at its start. {self.services.why(name)}".strip()
                if self.waits.monotonic() >= end:
                    return f"{name} was not ready after {self.ready_seconds:.0f} s."
                self.waits.wait(_LOOK_SECONDS)
        end = self.waits.monotonic() + self.steady_seconds
        while names and self.waits.monotonic() < end:
            self.waits.wait(_LOOK_SECONDS)
            for name in names:
                if self.services.state(name) != ("active", main[name]):
                    return f"{name} died soon after its start. {self.services.why(name)}".strip()
        return ""


def _run(layout: layout_kit.Layout, release_id: str, names: tuple[str, ...], watch: Watch) -> str:
    try:
        watch.services.put_units(layout, release_id)
        for name in names:
            watch.services.restart(name)
    except (programs.ProgramFailed, OSError) as error:
        return f"It could not be started: {error}"
    crash_points.reach(RESTARTED)
    return watch.lives(names)


class Systemd:
    """The service manager of this machine."""

    def in_use(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Those that run or try to; one that a person has stopped stays stopped."""
        if not units.is_running():
            return ()
        return tuple(name for name in names if self._show(name)["ActiveState"] != "inactive")

    def restart(self, name: str) -> None:
        """Stops it and starts it, waiting for neither."""
        programs.ask(["systemctl", "reset-failed", name])
        units.systemctl("restart", "--no-block", name)

    def state(self, name: str) -> tuple[str, str]:
        """Waiting for its next start is no life: it has died at least once.

        With an open job it is on its way, whatever it is yet: a restart that was just asked for
        leaves it `active`, with the former process, until systemd comes to it.
        """
        shown = self._show(name)
        if shown["SubState"].startswith("auto-restart"):
            return "failed", ""
        if shown["Job"] not in {"", "0"}:
            return "activating", ""
        return shown["ActiveState"], shown["MainPID"]

    def put_units(self, layout: layout_kit.Layout, release_id: str) -> None:
        """Puts the units of that release in their place."""
        found = units.of_release(layout, release_id)
        changed = units.write(layout, found)
        units.enable([unit for unit in found if unit.name in changed])
        units.start([unit for unit in found if not unit.name.endswith(".service")], again=changed)

    def why(self, name: str) -> str:
        """Its last lines in the journal."""
        try:
            done = programs.ask(
                [
                    "journalctl",
                    "--quiet",
                    "--no-pager",
                    "--output=cat",
                    "--lines=5",
                    f"--unit={name}",
                ],
                seconds=10,
            )
        except programs.ProgramFailed:
            return ""
        said = " | ".join(line.strip() for line in done.stdout.splitlines() if line.strip())
        return f"It said: {programs.printable(said[-500:])}" if said else ""

    def _show(self, name: str) -> dict[str, str]:
        text = units.systemctl(
            "show", "--property=ActiveState,SubState,MainPID,Job", name, seconds=20
        )
        pairs = (line.partition("=") for line in text.splitlines() if line)
        shown = {key: value for key, _, value in pairs}
        return {key: shown.get(key, "") for key in ("ActiveState", "SubState", "MainPID", "Job")}
