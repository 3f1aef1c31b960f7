"""`enlist worker …`: the Agent's own commands, run as its account where root typed them.

They are reached by name, since the layers forbid the import (docs/adr, 10).
"""

import copy
import importlib
import os
from collections.abc import Callable
from typing import Any

import click

from operator_cli import lazy
from operator_cli.commands import worker_update

_AS_ACCOUNT = ("join", "status", "refresh-trust", "renew", "leave")


def _build() -> click.Group:
    theirs: Any = importlib.import_module("worker_agent.command").worker
    group = lazy.Group("worker", help=theirs.help, no_args_is_help=True)
    for name, command in theirs.commands.items():
        own = copy.copy(command)
        own.params = [copy.copy(parameter) for parameter in command.params]
        if name in _AS_ACCOUNT:
            own.callback = _as_account(name, command.callback)
        group.add_command(own, name)
    group.add_command(worker_update.update)
    return group


def _as_account(name: str, callback: Callable[..., Any]) -> Callable[..., Any]:
    def run(**given: Any) -> Any:
        if os.geteuid() != 0:
            return callback(**given)
        from operator_cli import installed  # noqa: PLC0415 - only root pays for it

        return installed.run(name, callback, given)

    return run


worker = _build()
