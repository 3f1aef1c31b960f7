"""The options that every command takes, before or after its name.

Each command that is loaded, ours or another package's, is given these options; what was typed is
gathered in one `Options` at the root, where a command reads it:
`click.get_current_context().find_root().obj`. The nearest to the command wins, then the
environment. A command that declares an option of the same spelling keeps its own and receives
what was typed before its name as its default.

Not for: what the options lead to (`connection.py`). Known limit: a command of another package
that does not declare `--check` itself is refused with it, since it would change things for real.
"""

import inspect
import os
import re
from collections.abc import Callable
from typing import Any

import click

from wire_protocol import product

OUTPUTS = ("table", "json", "yaml")
_HINT = (
    "The global options (-o, --platform, --token-file, --data-dir, --yes, --check, --debug, "
    "--no-color) work here too: see enlist --help."
)
_EXAMPLES = re.compile(r"^( *Examples?:)$", re.MULTILINE)  # click would fold what follows


class Command(click.Command):
    """A command of this package: it reads `Options.check` wherever it changes something."""


class Options:
    """What was typed, with the environment behind it. Nothing here is checked but the output."""

    def __init__(self, *, environment: dict[str, str] | None = None) -> None:
        self.environment = dict(os.environ) if environment is None else environment
        self._typed: dict[str, Any] = {}

    def _text(self, name: str) -> str | None:
        value = self._typed.get(name)
        return None if value is None else str(value)

    def take(self, name: str, value: Any) -> None:
        """Keeps what was typed; a later one stands nearer to the command and wins."""
        self._typed[name] = value

    def typed(self, name: str) -> Any:
        """What was typed for that option, or None."""
        return self._typed.get(name)

    @property
    def output(self) -> str:
        """How to print: `table`, `json` or `yaml`."""
        chosen = self.typed("output") or self.environment.get("ENLIST_OUTPUT") or "table"
        if chosen not in OUTPUTS:
            raise click.UsageError(
                f"ENLIST_OUTPUT is {str(chosen)[:40]!r}; it must be table, json or yaml."
            )
        return str(chosen)

    @property
    def platform(self) -> str | None:
        """The Platform's address as typed."""
        return self._text("platform")

    @property
    def token_file(self) -> str | None:
        """Where the API token stands, `-` for stdin."""
        return self._text("token_file")

    @property
    def token(self) -> str | None:
        """The API token as an argument; it works and warns, since others can read it."""
        return self._text("token")

    @property
    def data_dir(self) -> str | None:
        """The data directory as typed, without the environment."""
        return self._text("data_dir")

    @property
    def yes(self) -> bool:
        """Whether questions are answered with yes."""
        return bool(self.typed("yes"))

    @property
    def check(self) -> bool:
        """Whether to say what would happen and change nothing."""
        return bool(self.typed("check"))

    @property
    def debug(self) -> bool:
        """Whether a fault of ours prints its traceback."""
        return bool(self.typed("debug"))

    @property
    def color(self) -> bool:
        """Whether colour may be used where a terminal shows it (no-color.org)."""
        return not self.typed("no_color") and not self.environment.get("NO_COLOR")


def current() -> Options:
    """The options of the command that runs."""
    found = click.get_current_context().find_root().obj
    if not isinstance(found, Options):
        raise TypeError("The root command keeps the global options.")
    return found


def attach(command: click.Command, *, hidden: bool = True) -> click.Command:
    """Gives the command, and every command below it, the global options; may be repeated."""
    if getattr(command, "global_options_attached", False):
        return command
    command.global_options_attached = True  # type: ignore[attr-defined]
    own = {
        spelling: parameter
        for parameter in command.params
        if isinstance(parameter, click.Option)
        for spelling in (*parameter.opts, *parameter.secondary_opts)
    }
    for option in _options(hidden=hidden, checks=_knows_check(command)):
        taken = [spelling for spelling in option.opts if spelling in own]
        for spelling in taken:
            _inherit(own[spelling], name=str(option.name))
        option.opts = [spelling for spelling in option.opts if spelling not in taken]
        if option.opts and option.name not in {parameter.name for parameter in own.values()}:
            command.params.append(option)
    if hidden and not command.epilog:
        command.epilog = _HINT
    if command.help:
        command.help = _EXAMPLES.sub("\b\n\\1", inspect.cleandoc(command.help))
    if isinstance(command, click.Group):
        for below in command.commands.values():
            attach(below)
    return command


def _knows_check(command: click.Command) -> bool:
    return isinstance(command, Command | click.Group)


def _options(*, hidden: bool, checks: bool) -> list[click.Option]:
    def option(*spellings: str, text: str, keep: Any = _keep, **more: Any) -> click.Option:
        return click.Option(
            spellings, help=text, expose_value=False, callback=keep, hidden=hidden, **more
        )

    return [
        option("--output", "-o", type=click.Choice(OUTPUTS), text="How to print (ENLIST_OUTPUT)."),
        option("--platform", metavar="URL", text="The Platform's address (ENLIST_PLATFORM)."),
        option(
            "--token-file",
            metavar="FILE",
            text="File with the API token, - for stdin (ENLIST_TOKEN holds the token itself).",
        ),
        click.Option(
            ("--token",), expose_value=False, callback=_keep, hidden=True, metavar="TOKEN"
        ),
        option(
            "--data-dir",
            metavar="DIR",
            text="The Platform's or worker's data directory (ENLIST_DATA_DIR).",
        ),
        option("--yes", is_flag=True, text="Answer questions with yes."),
        option(
            "--check",
            is_flag=True,
            keep=_keep if checks else _refuse_check,
            text="Say what would change; change nothing.",
        ),
        option("--debug", is_flag=True, text="Print the traceback of a fault of ours."),
        option("--no-color", is_flag=True, text="No colours (NO_COLOR)."),
        option(
            "--version",
            is_flag=True,
            is_eager=True,
            keep=_print_version,
            text="Print the version and exit.",
        ),
    ]


def _options_of(context: click.Context) -> Options:
    root = context.find_root()
    if not isinstance(root.obj, Options):
        root.obj = Options()
    return root.obj


def _was_typed(context: click.Context, parameter: click.Parameter) -> bool:
    source = context.get_parameter_source(str(parameter.name))
    return source is click.core.ParameterSource.COMMANDLINE


def _keep(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
    options = _options_of(context)
    if _was_typed(context, parameter):
        options.take(str(parameter.name), value)
    context.color = None if options.color else False
    return value


def _refuse_check(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
    if value or _options_of(context).check:
        raise click.UsageError(f"{context.command_path} does not know --check.", ctx=context)
    return _keep(context, parameter, value)


def _print_version(context: click.Context, _parameter: click.Parameter, value: Any) -> Any:
    if value and not context.resilient_parsing:
        click.echo(f"enlist {product.VERSION}")
        context.exit()
    return value


def _inherit(parameter: click.Option, *, name: str) -> None:
    own_default: Any = parameter.default

    def typed_or_own() -> Any:
        context = click.get_current_context(silent=True)
        typed = None if context is None else _options_of(context).typed(name)
        if typed is not None:
            return typed
        fallback: Callable[[], Any] | Any = own_default
        return fallback() if callable(fallback) else fallback

    parameter.default = typed_or_own
