"""The processes at the edge: which there are, how each is started, and what their units are told.

Under `enlist serve` they are the host's children. Installed, each is a unit of its own, under an
account that cannot read the settings; the host then leaves the words that stand behind the units'
commands in a file, which root judges and hands to them (``edge.handover``).
"""

import os
import pathlib
from collections.abc import Sequence
from typing import Final

from platform_server.app import binding, children, data_dir
from platform_server.edge import handover
from platform_server.settings import groups
from runtime_kit import private_files

STOP_SECONDS: Final = 3.5
LISTENER: Final = "listener"
BUNDLES: Final = "bundles"


def wanted(bound: binding.Bound, settings: groups.Settings) -> list[str]:
    """The names of the processes that the host starts, one for each."""
    listeners = [LISTENER] * settings.enrollment.workers if bound.enrollment else []
    return [*listeners, *([BUNDLES] if bound.bundles else [])]


def start(
    name: str, *, bound: binding.Bound, settings: groups.Settings, folder: pathlib.Path
) -> children.Child:
    """Starts one as this process's child."""
    sockets = bound.enrollment if name == LISTENER else bound.bundles
    descriptors = [one.fileno() for one in sockets]
    arguments = [
        f"platform_server.{name}",
        *(word for fd in descriptors for word in ("--fd", str(fd))),
        *("--child-of", str(os.getpid())),
        *("--tls-file", str(_listener_folder(folder) / handover.KEY)),
        *_places_of(name, folder=folder),
        *_words_of(name, settings=settings),
    ]
    return children.start(name, module=arguments, inherit=descriptors)


def write_for_units(settings: groups.Settings, *, folder: pathlib.Path) -> None:
    """Replaces the units' file where it says something else; raises `OSError`."""
    if not (settings.enrollment.unit or settings.bundles.unit):
        return
    content = handover.written(
        {name: _words_of(name, settings=settings) for name in (LISTENER, BUNDLES)}
    )
    path = _listener_folder(folder) / handover.WORDS
    try:
        if private_files.read_private(path, max_bytes=handover.MOST_BYTES) == content:
            return
    except (FileNotFoundError, private_files.LaxMode, private_files.FileTooLarge):
        pass  # not there, or not as we write it: written anew below
    private_files.write_private(path, content)


def _listener_folder(folder: pathlib.Path) -> pathlib.Path:
    return folder / data_dir.RUN / LISTENER


def _places_of(name: str, *, folder: pathlib.Path) -> Sequence[str]:
    """Where a child finds things; a unit has them elsewhere."""
    if name == BUNDLES:
        return ("--folder", str(folder / data_dir.BUNDLES))
    return ("--engine-socket", str(folder / data_dir.RUN / binding.ENROLL_SOCKET))


def _words_of(name: str, *, settings: groups.Settings) -> Sequence[str]:
    """What the settings say of it; no word holds a blank or a quote."""
    common = (
        *("--drain-s", str(STOP_SECONDS - 0.5)),
        *("--log-level", settings.log.level),
        *("--log-format", settings.log.format),
    )
    if name == BUNDLES:
        return ("--max-sockets", str(settings.bundles.sockets), *common)
    group = settings.enrollment
    return (
        *("--max-body-bytes", str(group.body_bytes)),
        *("--max-in-work", str(group.connections)),
        *("--max-sockets", str(group.sockets)),
        *common,
        *(word for network in group.trusted_proxies for word in ("--trusted-proxy", str(network))),
    )
