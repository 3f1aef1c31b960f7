"""Which release is in use, which one to go back to, and what interrupted installations left.

A release is whole when its folder is named by the hash of what it says and lists its files: so one
that was cut off, or copied under another name, is never chosen.
"""

import contextlib
import functools
import shutil
from collections.abc import Iterator

from installer import failures, install, switch
from installer.checkup import seen as seen_kit
from runtime_kit import mends, processes
from wire_protocol import findings, problems

_ASIDE = (".making-", ".old-", ".tmp-")
_SHOWN = 5

Found = tuple[findings.Finding, ...]


def under_way(seen: seen_kit.Seen) -> Found:
    """Whether somebody changes this installation now; asked without taking the lock."""
    pid = processes.holder_of_flock(seen.here.root)
    if pid is None:
        return ()
    return (
        findings.warning(
            "under-way",
            f"An installation, an update or a removal is at work here ({processes.name_of(pid)}): "
            "what follows may be different in a minute.",
            kind=problems.Kind.TRANSIENT,
        ),
    )


def release(seen: seen_kit.Seen) -> Found:
    """Whether `current` leads to a whole release."""
    link = seen.current
    facts: dict[str, object] = {"current": link.names, "releases": list(seen.releases)}
    if link.names is not None and link.is_whole and seen.release is not None:
        facts |= {
            "version": seen.release.version,
            "arch": seen.release.arch,
            "commit": seen.release.commit,
        }
        return (findings.ok("release", f"{link.names} is in use.", facts=facts),)
    if not link.is_there:
        text = f"{link.path} is gone, so no command and no unit finds the release."
    elif link.names is None:
        text = f"{link.path} does not lead to a release of this installation."
    else:
        text = f"{link.path} leads to {link.names}, which is not there or not whole."
    other = candidate(seen)
    if other is None or (link.is_there and link.names is None and not _is_link(seen)):
        command = seen.reinstall()
    else:
        text, command = f"{text} {other} is here and whole.", seen.fix()
    return (findings.needs_operator("release", text, command=command, facts=facts),)


def candidate(seen: seen_kit.Seen) -> str | None:
    """The release to use where `current` leads nowhere: the receipt's, else the one before."""
    wished = None if seen.receipt is None else seen.receipt.release
    for one in (wished, seen.previous.names):
        if one is not None and seen_kit.is_whole(seen.around, seen.layout, one):
            return one
    whole = [one for one in seen.releases if seen_kit.is_whole(seen.around, seen.layout, one)]
    return whole[0] if len(whole) == 1 else None  # of several nothing says which


def previous(seen: seen_kit.Seen) -> Found:
    """Whether there is a release to go back to."""
    link = seen.previous
    if not link.is_there:
        return (findings.ok("previous", "There is no release before this one to go back to."),)
    if link.is_whole:
        return (findings.ok("previous", f"{link.names} can be gone back to."),)
    return (
        findings.warning(
            "previous",
            f"{link.path} leads to {link.names or 'no release'}, which is not there or not whole: "
            "an update that fails cannot go back.",
            command=seen.reinstall(),
        ),
    )


def left_over(seen: seen_kit.Seen) -> Found:
    """What killed installations and updates left."""
    aside, others = left(seen), unused(seen)
    if not aside and not others:
        return (findings.ok("left-over", "Nothing was left by an interrupted installation."),)
    named = ", ".join([*aside, *others][:_SHOWN])
    return (
        findings.warning(
            "left-over",
            f"{len(aside) + len(others)} folders are of no use: {named}. An update under way has "
            "such too, for a minute.",
            command=seen.fix() if aside else seen.reinstall(),
            facts={"aside": aside, "unused": others},
        ),
    )


def left(seen: seen_kit.Seen) -> list[str]:
    """What stands aside under a name of an unfinished step, below the role's folder."""
    beside = [f"releases/{name}" for name in seen.releases]
    return [name for name in (*seen.entries, *beside) if name.rpartition("/")[2].startswith(_ASIDE)]


def unused(seen: seen_kit.Seen) -> list[str]:
    """Releases that neither link leads to; the next installation removes them."""
    kept = {seen.current.names, seen.previous.names, candidate(seen)}
    return [name for name in seen.releases if name not in kept and not name.startswith(_ASIDE)]


def mends_of(seen: seen_kit.Seen) -> list[mends.Mend]:
    """`current` put back where a whole release is here, and what was left aside removed."""
    possible = []
    other = candidate(seen)
    if not seen.current.is_whole and other is not None and _is_link(seen):
        possible.append(
            mends.Mend(
                action="link",
                target=str(seen.layout.current),
                detail=f"to release {other}, which is whole",
                apply=functools.partial(_point, seen, other),
            )
        )
    possible += [
        mends.Mend(
            action="remove",
            target=str(seen.layout.root / name),
            detail="what an interrupted installation left",
            apply=functools.partial(_remove, seen, name),
        )
        for name in left(seen)
    ]
    return possible


def _is_link(seen: seen_kit.Seen) -> bool:
    """Whether the name is free or a link: a folder in its place is nothing to replace unasked."""
    path = seen.here.current
    return path.is_symlink() or not path.exists()


def _point(seen: seen_kit.Seen, release_id: str) -> None:
    with alone(seen):
        if release_id == seen.previous.names:
            switch.back_to(seen.here, release_id)
            return
        # Gone first, so that what it led to does not become the release to go back to.
        seen.here.current.unlink(missing_ok=True)
        switch.to_release(seen.here, release_id)


def _remove(seen: seen_kit.Seen, name: str) -> None:
    path = seen.here.root / name
    with alone(seen):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


@contextlib.contextmanager
def alone(seen: seen_kit.Seen) -> Iterator[None]:
    """Not while an installation, an update or a removal is at work here."""
    try:
        with install.one_at_a_time(seen.here):
            yield
    except failures.Failure as error:
        raise mends.CannotMend(f"{error}") from error
    except OSError as error:
        raise mends.CannotMend(f"{error.strerror}") from error
