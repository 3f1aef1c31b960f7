"""Changes which release runs, as an order said, and brings to its end what was cut off.

The steps that can be cut off are named. Up to `begun` nothing has changed, and the same order given
again goes through. From then on the next helper that starts finishes: it is the helper of the
release that began, by way of the link `finisher`, since the new one may be what is broken. What is
watched, and how it goes back, is `installer.changeover`. Blocking: runs in a thread of its own.
"""

import contextlib
import dataclasses
import pathlib
import sys
from collections.abc import Iterator

from installer import changeover, install, programs, selinux, switch, units, waiting
from installer import failures as install_failures
from installer import layout as layout_kit
from installer import receipt as receipt_kit
from root_helper import last_order, refusals
from root_helper import places as places_kit
from runtime_kit import crash_points
from wire_protocol import updates

SOCKET_UNIT = "enlist-helper.socket"
TAKEN = crash_points.declare(
    "helper.taken", story="The order is on the disk; nothing of it has been done."
)
STAGED = crash_points.declare(
    "helper.staged", story="The release stands beside the others; nobody was told."
)
BEGUN = crash_points.declare(
    "helper.begun", story="The disk says that the release is being changed."
)
FINISHER_SET = crash_points.declare(
    "helper.finisher-set", story="The present release is named as the one to finish."
)
CHANGED = crash_points.declare(
    "helper.changed", story="The change has been watched to its end; nothing says so yet."
)
OUTCOME_WRITTEN = crash_points.declare(
    "helper.outcome-written", story="What became of it is on the disk; the order is still open."
)
ENDED = crash_points.declare(
    "helper.ended", story="The order has ended; the finisher is still named."
)


class CutOff(Exception):
    """A change of release did not come to its end; whoever starts next goes on with it."""


class Services(changeover.Systemd):
    """The machine's service manager; the helper's own socket stays open, whatever the new one says.

    A socket whose service runs cannot be started; the new one counts from the next boot on.
    """

    def put_units(self, layout: layout_kit.Layout, release_id: str) -> None:
        """Puts the units of that release in their place."""
        found = units.of_release(layout, release_id)
        changed = units.write(layout, found)
        units.enable([unit for unit in found if unit.name in changed])
        others = [
            unit
            for unit in found
            if not unit.name.endswith(".service") and unit.name != SOCKET_UNIT
        ]
        units.start(others, again=changed)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Changing:
    """Takes orders, and carries them out."""

    places: places_kit.Places
    services: changeover.Services
    waits: waiting.Waits
    ready_seconds: float = changeover.READY_SECONDS
    steady_seconds: float = changeover.STEADY_SECONDS

    def last(self) -> last_order.LastOrder | None:
        """The last order; raises `Refused` where that cannot be told: then none is taken."""
        try:
            return last_order.read(self.places)
        except places_kit.Damaged as error:
            raise refusals.Refused(refusals.Code.FAILED, str(error)) from error

    def take(self, number: tuple[int, int], *, sha256: str) -> last_order.LastOrder:
        """Writes the order down; from now on none with its number or a lower one is taken."""
        taken = last_order.LastOrder(number=number, sha256=sha256, stage=last_order.Stage.TAKEN)
        try:
            last_order.write(self.places, taken)
        except OSError as error:
            raise refusals.Refused(
                refusals.Code.FAILED, f"The order cannot be written down: {error.strerror}."
            ) from error
        crash_points.reach(TAKEN)
        return taken

    def release_to_go_back_to(self) -> str:
        """The id; raises `Refused`."""
        found = switch.previous(self.places.layout)
        if found is None:
            raise refusals.Refused(
                refusals.Code.NOTHING_TO_GO_BACK_TO,
                "There is no release before the present one on this machine.",
            )
        return found

    def require_start(self, release_id: str) -> None:
        """A release that cannot even say its version is not put in use; raises `Refused`."""
        command = self.places.layout.release(release_id) / "bin" / "enlist"
        try:
            selinux.relabel(self.places.layout)
            said = programs.run([str(command), "--version"], seconds=60)
        except programs.ProgramFailed as error:
            raise refusals.Refused(
                refusals.Code.FAILED, f"The release does not run here: {error}"
            ) from error
        if said.split() != ["enlist", updates.version_of_release(release_id)]:
            raise refusals.Refused(
                refusals.Code.BAD_ARCHIVE, f"The release says of itself: {said.strip()[:80]}"
            )

    def carry_out(self, taken: last_order.LastOrder, *, to: str) -> last_order.Outcome:
        """Changes to that release, or goes back from it; raises `CutOff`. Under `alone`."""
        with _to_its_end():
            back = switch.current(self.places.layout) or ""
            begun = dataclasses.replace(
                taken, stage=last_order.Stage.BEGUN, to=to, back=back, tries=1
            )
            last_order.write(self.places, begun)
            crash_points.reach(BEGUN)
            return self._change(begun)

    def finish(self) -> last_order.Outcome | None:
        """Brings a change that was cut off to its end; None where there is none.

        Raises `CutOff` where it cannot be done now, and `Damaged` where nobody can tell.
        """
        open_order = last_order.read(self.places)
        if open_order is None or open_order.stage is not last_order.Stage.BEGUN:
            self._drop_finisher()
            return None
        with _to_its_end(), self.alone():
            again = dataclasses.replace(open_order, tries=open_order.tries + 1)
            last_order.write(self.places, again)
            return self._change(again)

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Neither an installation nor a removal runs meanwhile; raises `Refused` while one does."""
        try:
            with install.one_at_a_time(self.places.layout):
                yield
        except install_failures.Temporary as error:
            raise refusals.Refused(refusals.Code.BUSY, str(error)) from error

    def _change(self, order: last_order.LastOrder) -> last_order.Outcome:
        layout = self.places.layout
        switch.point(self.places.finisher, running_release(layout))
        crash_points.reach(FINISHER_SET)
        gives_up = order.tries > last_order.MOST_TRIES and order.back
        to = order.back if gives_up else order.to
        self._note_units(to)
        done = changeover.change(
            layout,
            to=to,
            services=self.services,
            waits=self.waits,
            ready_seconds=self.ready_seconds,
            steady_seconds=self.steady_seconds,
        )
        crash_points.reach(CHANGED)
        outcome = last_order.Outcome(
            number=order.number,
            end=changeover.End.WENT_BACK.value if gives_up else done.end.value,
            release=done.release,
            reason=f"It was cut off {order.tries - 1} times."
            if gives_up
            else refusals.printable(done.reason),  # ends with what the Agent's journal says
            at=receipt_kit.now(),
        )
        self._record(outcome)
        last_order.write_outcome(self.places, outcome)
        crash_points.reach(OUTCOME_WRITTEN)
        last_order.write(self.places, dataclasses.replace(order, stage=last_order.Stage.ENDED))
        crash_points.reach(ENDED)
        self._drop_finisher()
        if done.end is changeover.End.CHANGED:
            switch.remove_others(layout)
        return outcome

    def _note_units(self, release_id: str) -> None:
        """The receipt names what is about to be put in place, for the removal."""
        layout = self.places.layout
        receipt = receipt_kit.find(layout.receipt)
        names = [unit.name for unit in units.of_release(layout, release_id)]
        if receipt is not None and names:
            paths = [units.path_of(layout, name) for name in names]
            receipt_kit.write(receipt.adding(units=names, files=paths), layout=layout)

    def _record(self, outcome: last_order.Outcome) -> None:
        layout = self.places.layout
        receipt = receipt_kit.find(layout.receipt)
        if receipt is not None and receipt.release != outcome.release:
            changed = dataclasses.replace(
                receipt,
                release=outcome.release,
                version=updates.version_of_release(outcome.release),
                updated_at=outcome.at,
            )
            receipt_kit.write(changed, layout=layout)

    def _drop_finisher(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.places.finisher.unlink()


@contextlib.contextmanager
def _to_its_end() -> Iterator[None]:
    try:
        yield
    except (OSError, receipt_kit.Unreadable, refusals.Refused) as error:
        told = refusals.printable(str(error))
        raise CutOff(f"The change of release is not at its end: {told}") from error


def running_release(layout: layout_kit.Layout, *, prefix: str = sys.prefix) -> pathlib.Path:
    """The release that this very program is of; the present one where it is of none."""
    own = pathlib.Path(prefix).resolve()
    if own.parent == layout.releases.resolve():
        return own
    return layout.current.resolve()
