"""The Python half of install.sh: it runs from the verified payload, or from the uninstaller.

Arguments are install.sh's own, already told apart; people type those of install.sh. Ends with the
exit codes of interface.md and one sentence, never a traceback without `--debug`.
"""

import argparse
import contextlib
import os
import pathlib
import sys
import traceback
from collections.abc import Sequence

from installer import (
    changeover,
    failures,
    firewall,
    install,
    joining,
    offering,
    programs,
    tree,
    uninstall,
    units,
    waiting,
)
from installer import layout as layout_kit
from installer import progress as progress_kit
from installer import receipt as receipt_kit
from installer import release as release_format
from runtime_kit import reports

_WENT_BACK = 3
_NEEDS_ROOT = {
    layout_kit.Role.WORKER: "updates ordered by the Platform, the mesh, a unit of the system",
    layout_kit.Role.PLATFORM: "ports below 1024, an account for the edge, units of the system",
}


def main(arguments: Sequence[str]) -> int:
    """Does it; gives the exit code."""
    os.umask(0o022)
    chosen = _parser().parse_args(arguments)
    progress = progress_kit.Progress(elapsed=chosen.elapsed, before=chosen.times)
    try:
        return (_uninstall if chosen.uninstall else _install)(chosen, progress)
    except KeyboardInterrupt:
        return _fail("Stopped. Run the same command again to go on.", 130)
    except Exception as error:  # noqa: BLE001 - the last door: a sentence instead of a traceback
        if chosen.debug:
            traceback.print_exc()
        return _fail(*_told(error))


def _told(error: Exception) -> tuple[str, int]:
    """The sentence and the exit code of a failure."""
    match error:
        case failures.Failure():
            return str(error), error.exit_code
        case release_format.BadRelease() | tree.BadPayload():
            return str(error), failures.Refused.exit_code
        case receipt_kit.Unreadable():
            return str(error), failures.NeedsOperator.exit_code
        case programs.ProgramFailed():
            return f"{error} Run the same command again.", failures.Failure.exit_code
        case OSError():
            where = f" ({error.filename})" if error.filename else ""
            text = f"{error.strerror}{where}. Mend that and run the same command again."
            return text, failures.NeedsOperator.exit_code
        case _:
            return reports.write(error, environment=os.environ).sentence, 1


def _install(chosen: argparse.Namespace, progress: progress_kit.Progress) -> int:
    layout = _layout(chosen)
    source = install.Source.in_folder(pathlib.Path(chosen.source))
    wish = install.Wish(
        layout=layout,
        source=source,
        release_key=pathlib.Path(chosen.release_key).read_bytes(),
        replace_key=chosen.replace_key,
        older_allowed=chosen.version == source.release.version,
        version=chosen.version,
        archive_name=chosen.archive_name,
        packages=tuple(chosen.packages.split()),
    )
    before = receipt_kit.find(layout.receipt)
    install.check(wish, before=before)
    if chosen.dry_run:
        _say_plan(wish, before=before)
        return 0
    token = _token(chosen, layout)
    progress.say(f"Version {source.release.version}, made {source.release.made_at}")
    outcome = install.install(wish, progress=progress, waits=waiting.SystemWaits())
    if outcome.end is not changeover.End.CHANGED:
        if before is None:
            return _fail(f"Installed, and not alive: {outcome.reason}", 6)
        return _fail(
            f"{source.release.id} does not live here: {outcome.reason} In use: {outcome.release}.",
            _WENT_BACK,
        )
    progress.say(f"Installed: {outcome.release} as {layout.role} in {layout.root}")
    if layout.account is None:
        starts = "agent" if layout.role is layout_kit.Role.WORKER else "serve"
        progress.say(f"Nothing starts it at boot. It runs by: {layout.link} {starts}")
        progress.say(f"Not here, since it needs root: {_NEEDS_ROOT[layout.role]}")
    if not install.has_link(layout):
        progress.say(f"{layout.link} is another's, and left. The command here: {layout.command}")
    _firewall(chosen, layout, progress)
    _offer(chosen, layout, progress)
    code = 0
    if token is not None:
        with progress.phase("join", "Joining"):
            code = joining.join(layout, token=token, arguments=chosen.join)
        if code != 0:
            progress.say(f"Installed, not joined. Then: {joining.words(layout)} worker join -")
    elif layout.role is layout_kit.Role.WORKER and not joining.joined(layout):
        progress.say(f"Not joined yet. Next: {joining.words(layout)} worker join -")
    progress.say(f"Seconds: {progress.summary()}")
    return code


def _uninstall(chosen: argparse.Namespace, progress: progress_kit.Progress) -> int:
    layout = _layout(chosen)
    if chosen.dry_run:
        for line in uninstall.plan(layout, with_machines=chosen.remove_machines):
            sys.stdout.write(f"would {line}\n")
        return 0
    problems = uninstall.uninstall(
        layout,
        progress=progress,
        waits=waiting.SystemWaits(),
        with_machines=chosen.remove_machines,
    )
    for problem in problems:
        progress.say(f"Not removed: {problem}")
    if problems:
        return _fail("Some of it is left. Mend that and run the same command again.", 6)
    progress.say(f"Seconds: {progress.summary()}")
    return 0


def _layout(chosen: argparse.Namespace) -> layout_kit.Layout:
    """The places asked for; those of the receipt where it names them and nothing was asked for."""
    role = layout_kit.Role(chosen.role)
    prefix = pathlib.Path(chosen.prefix)
    data_dir = pathlib.Path(chosen.data_dir) if chosen.data_dir else None
    if data_dir is None:
        with contextlib.ExitStack() as lax:
            if chosen.uninstall:  # what cannot be read stops no removal
                lax.enter_context(contextlib.suppress(receipt_kit.Unreadable))
            found = receipt_kit.find(prefix / role / "receipt.json")
            data_dir = found.data_dir if found else None
    if chosen.rootless:
        return layout_kit.rootless(role, prefix=prefix, data_dir=data_dir, environment=os.environ)
    return layout_kit.system(role, prefix=prefix, data_dir=data_dir)


def _token(chosen: argparse.Namespace, layout: layout_kit.Layout) -> str | None:
    if layout.role is not layout_kit.Role.WORKER:
        return None
    if chosen.join_token_file:
        return joining.read_token(chosen.join_token_file)
    if chosen.yes or joining.joined(layout):
        return None
    return joining.ask_for_token()


def _firewall(
    chosen: argparse.Namespace, layout: layout_kit.Layout, progress: progress_kit.Progress
) -> None:
    """Says what opens the ports that are needed; runs it only where that was asked for."""
    if layout.account is None:
        return
    for opened in firewall.openings(_ports(chosen, layout)):
        command = " ".join(opened.done)
        if not chosen.open_firewall:
            progress.say(f"The firewall here may be in the way. To open it: {command}")
        elif not firewall.is_open(opened):
            receipt = receipt_kit.find(layout.receipt)
            if receipt is not None:
                receipt_kit.write(receipt.adding(firewall=[opened]), layout=layout)
            progress.say(f"Opening the firewall: {command}")
            firewall.open_port(opened)


def _ports(chosen: argparse.Namespace, layout: layout_kit.Layout) -> tuple[int, ...]:
    """A Platform's, or that of an Agent that listens; one that dials out needs none."""
    if layout.role is layout_kit.Role.PLATFORM:
        return firewall.PORTS[layout.role]
    words: list[str] = [part for word in chosen.join for part in word.split("=", 1)]
    if "--address" not in words and not chosen.open_firewall:
        return ()
    given = words[words.index("--port") + 1 :] if "--port" in words else []
    if given and given[0].isdigit():
        return (int(given[0]),)
    return firewall.PORTS[layout.role]


def _offer(
    chosen: argparse.Namespace, layout: layout_kit.Layout, progress: progress_kit.Progress
) -> None:
    """A Platform offers the workers' archives that it was installed beside."""
    folder = pathlib.Path(chosen.beside)
    if layout.role is not layout_kit.Role.PLATFORM or not chosen.beside:
        return
    if not offering.lies_beside(folder):
        return
    by_hand = " ".join(offering.command(layout, folder))
    if not units.is_running() or layout.account is None:
        progress.say(f"To offer the worker bundles, once the Platform runs: {by_hand}")
        return
    with progress.phase("bundles", f"Offering the worker bundles in {folder}"):
        if not offering.offer(layout, folder):
            progress.say(f"They could not be offered. Then: {by_hand}")


def _say_plan(wish: install.Wish, *, before: receipt_kit.Receipt | None) -> None:
    layout, release = wish.layout, wish.source.release
    lines = [f"make the account {name}" for name in layout.accounts]
    lines += [f"put the release {release.id} into {layout.release(release.id)}"]
    if before is not None and before.release != release.id:
        lines.append(f"change from {before.release}, watch it, and go back if it does not live")
    lines += [f"keep data in {layout.data_dir}", f"link {layout.link} to {layout.command}"]
    if layout.units is not None:
        lines.append(f"put units into {layout.units} and start them")
    for line in lines:
        sys.stdout.write(f"would {line}\n")


def _fail(text: str, code: int) -> int:
    sys.stderr.write(f"enlist: {programs.printable(text)}\n")
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="install.sh", allow_abbrev=False)
    parser.add_argument("--role", choices=[str(role) for role in layout_kit.Role], required=True)
    parser.add_argument("--prefix", required=True)
    parser.add_argument("--data-dir", default="")
    parser.add_argument("--rootless", action="store_true")
    parser.add_argument("--uninstall", action="store_true")
    parser.add_argument("--remove-machines", action="store_true")
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--yes", action="store_true")
    parser.add_argument("--debug", action="store_true")
    parser.add_argument("--source", default="")
    parser.add_argument("--beside", default="")
    parser.add_argument("--version", default="")
    parser.add_argument("--archive-name", default="")
    parser.add_argument("--release-key", default="")
    parser.add_argument("--replace-key", action="store_true")
    parser.add_argument("--packages", default="")
    parser.add_argument("--join-token-file", default="")
    parser.add_argument("--open-firewall", action="store_true")
    parser.add_argument("--times", default="")
    parser.add_argument("--elapsed", type=float, default=0.0)
    parser.add_argument("--join", nargs=argparse.REMAINDER, default=[])
    return parser
