"""Joins `enlist doctor` to a Platform: where everything lies, and which parts an engine looks at.

Decides nothing; `platform_server.doctor` looks and judges.
"""

import dataclasses
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from platform_server.app import binding, data_dir, orders
from platform_server.doctor import checkup, inside, outside
from platform_server.edge import handover
from platform_server.endpoints import routes
from platform_server.nodes import asking, configured
from platform_server.sealing import key_file
from platform_server.settings import groups, layers
from platform_server.store import contract
from runtime_kit import clock as clock_kit
from runtime_kit import file_rules
from wire_protocol import pins

_STORE: Final = "enlist.db"


def of(
    folder: pathlib.Path,
    *,
    clock: clock_kit.Clock,
    environment: Mapping[str, str],
    start_command: str | None = None,
) -> checkup.Checkup:
    """The checkup of the Platform that keeps its data there, for the command."""
    found = places(folder, environment=environment)
    return checkup.Checkup(
        dataclasses.replace(found, start_command=start_command),
        settings=lambda: layers.load(folder, config_file=None, environ=environment, flags={}),
        clock=clock,
    )


def places(folder: pathlib.Path, *, environment: Mapping[str, str]) -> outside.Places:
    """Where it keeps what, and who may read it."""
    run = data_dir.RUN
    return outside.Places(
        folder=folder,
        master_key=data_dir.master_key_path(folder, environ=environment),
        run=folder / run,
        host_lock=folder / run / data_dir.LOCK,
        local_socket=folder / run / binding.LOCAL_SOCKET,
        rules=(
            file_rules.folder("."),
            file_rules.folder(run),
            file_rules.folder(f"{run}/listener"),
            file_rules.file(key_file.NAME),
            *(file_rules.file(f"{_STORE}{suffix}") for suffix in ("", "-wal", "-shm", ".lock")),
            file_rules.file(f"{run}/{data_dir.LOCK}"),
            file_rules.file(f"{run}/listener/tls.pem"),
            file_rules.file(f"{run}/listener/{handover.WORDS}"),
            file_rules.file(f"{run}/api-tls.pem"),
        ),
    )


def served(
    given: orders.Orders,
    *,
    settings: groups.Settings,
    store: contract.Store,
    clock: clock_kit.Clock,
    asker: asking.Asker | None,
    api_pins: Callable[[], Sequence[pins.Pin]],
) -> Sequence[routes.Route]:
    """The route by which a running engine is asked."""

    def load() -> layers.Loaded:
        return layers.load(
            given.data_dir,
            config_file=given.config_file,
            environ=os.environ,
            flags=given.flags,
        )

    return inside.served(
        inside.Checkup(
            inside.Inside(
                store=store,
                url=settings.store.database_url or f"sqlite:///{given.data_dir}/{_STORE}",
                settings=load,
                running=load(),
                clock=clock,
                operators=configured.of_settings(settings),
                asker=asker,
                api_url=given.api_url,
                api_pins=api_pins,
            )
        )
    )
