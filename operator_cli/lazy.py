"""Groups whose commands are imported only when they are called.

A static table gives for each command where its object lives, `module:object`, and its one line
of help, so that
`enlist --help` imports nothing but click. Objects of other packages are reached by name
(importlib), since the layers forbid the import. Known limit: the line of help stands twice, here
and at the command; tests/unit/operator_cli/test_tree.py compares them.
"""

import importlib
from collections.abc import Mapping, Sequence

import click

from operator_cli import global_options

_OURS = (
    "wire_protocol",
    "runtime_kit",
    "enlist",
    "operator_cli",
    "worker_agent",
    "installer",
    "root_helper",
)


class Group(click.Group):
    """A group that keeps the order of its commands and says which one was perhaps meant."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names as they were added."""
        del ctx
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Finds the command, or raises a usage error with the nearest names."""
        name = args[0]
        known = self.list_commands(ctx)
        if name not in known and not name.startswith("-") and not ctx.resilient_parsing:
            raise click.UsageError(unknown(name, among=known, path=ctx.command_path), ctx=ctx)
        return super().resolve_command(ctx, args)


class LazyGroup(Group):
    """A group over such a table; its order is the order of the table."""

    def __init__(self, name: str, *, table: Mapping[str, tuple[str, str]], text: str) -> None:
        super().__init__(name, help=text, no_args_is_help=True)
        self.table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, without loading anything."""
        del ctx
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Imports that one command."""
        del ctx
        if cmd_name not in self.table:
            return None
        if cmd_name not in self.commands:
            place, _ = self.table[cmd_name]
            self.commands[cmd_name] = global_options.attach(_load(place))
        return self.commands[cmd_name]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list in the help text, from the table alone."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in self.table.items()])


def unknown(name: str, *, among: Sequence[str], path: str) -> str:
    """The sentence about a command that does not exist."""
    import difflib  # noqa: PLC0415 - only a mistake pays for it

    near = difflib.get_close_matches(name, among, n=2, cutoff=0.55)
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    return f"{path} has no command {name[:40]!r}.{hint}"


def _load(place: str) -> click.Command:
    module_name, _, attribute = place.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if module_name.startswith(_OURS) or missing in _OURS:
            raise
        raise MissingPackages(missing) from error
    found = getattr(module, attribute)
    if not isinstance(found, click.Command):
        raise TypeError(f"{place} is not a command.")
    return found


class MissingPackages(click.ClickException):
    """The Platform's packages are not installed here: install them."""

    exit_code = 6

    def __init__(self, missing: str) -> None:
        super().__init__(
            f"This machine has Enlist without the Platform's packages ({missing} is missing). "
            "Install them: pip install 'enlist[platform]'"
        )
