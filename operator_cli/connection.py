"""Which Platform a command talks to, and the client for it.

The first that is given: `--platform`, `--data-dir` (its socket), ENLIST_PLATFORM,
ENLIST_DATA_DIR, the current context, this machine's default data directory. Pins, CA file and
token file come from the context with the same address; `--token-file` and ENLIST_TOKEN win over
the context's.
"""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from enlist import calls, targets
from operator_cli import contexts, global_options, printing

if TYPE_CHECKING:
    from enlist import driving

STDIN = "-"
_MAX_SECRET_BYTES = 4096
_MAX_CA_BYTES = 1_048_576


@contextlib.contextmanager
def client() -> Iterator["driving.Waiting"]:
    """The client for the Platform that the options name."""
    with _opened(choose(global_options.current())) as opened:
        yield opened


def _opened(target: targets.Target) -> "driving.Waiting":
    if target.is_plain:
        from enlist import plain  # noqa: PLC0415 - only when something is asked

        return plain.PlainClient(target=target)
    # httpx imports its own command line (rich and pygments) where that is installed, which costs
    # 60 ms a command; None makes that import fail as if it were not.
    hidden = "httpx._main"
    if "httpx" not in sys.modules:
        sys.modules[hidden] = None  # type: ignore[assignment]
    from enlist.client import Client  # noqa: PLC0415 - httpx only where there is TLS

    if sys.modules.get(hidden, target) is None:
        del sys.modules[hidden]
    return Client(target=target)


def ask(call: calls.Call[Any]) -> Any:
    """One question and its answer as JSON."""
    with client() as opened:
        return opened.document(call)


def every(call: calls.Call[Any], *, of: str, limit: int | None = None) -> list[Any]:
    """The entries of every page of a list, up to `limit`."""
    found: list[Any] = []
    with client() as opened:
        for page in pages(opened, call):
            found += page[of]
            if limit is not None and len(found) >= limit:
                return found[:limit]
    return found


def pages(opened: "driving.Waiting", call: calls.Call[Any]) -> Iterator[Any]:
    """Page after page."""
    while True:
        page = opened.document(call)
        yield page
        if not page.get("next_cursor"):
            return
        call = calls.after(call, cursor=page["next_cursor"])


def change(call: calls.Call[Any], *, question: str | None = None) -> Any:
    """Asks the person where a terminal is there, then makes the change; None under `--check`.

    Under `--check` what would change is printed and nothing is done.
    """
    options = global_options.current()
    if options.check:
        document = ask(calls.checked(call))
        printing.show(document, lines=lambda: printing.changes(document, check=True))
        return None
    if question is not None:
        confirm(question)
    return ask(call)


def confirm(question: str) -> None:
    """Asks on a terminal; without one, or with `--yes`, goes on."""
    options = global_options.current()
    if options.yes or not on_terminal():
        return
    if not click.confirm(question, err=True):
        printing.say("Nothing was changed.")
        raise click.exceptions.Exit(click.UsageError.exit_code)


def choose(options: global_options.Options) -> targets.Target:
    """The target by the order above."""
    environment = options.environment
    place, data_dir = options.platform, options.data_dir
    if place is None and data_dir is None:
        place, data_dir = environment.get("ENLIST_PLATFORM"), environment.get("ENLIST_DATA_DIR")
    if not place and data_dir:
        return targets.local(Path(data_dir))
    book = contexts.read(contexts.place(environment))
    if not place:
        if book.current is None:
            return targets.local()
        context: contexts.Context | None = book.contexts[book.current]
        place = book.contexts[book.current].url
    elif place.startswith(targets.UNIX):
        context = None
    else:
        context = book.by_url(place)
    return targets.parse(
        place,
        token=_token(options, context=context),
        pins=context.pins if context else (),
        ca_pem=_ca(context),
    )


def read_secret(place: str, *, what: str) -> str:
    """The secret in a file, or on stdin for `-`; raises a usage error."""
    try:
        if place == STDIN:
            raw = sys.stdin.buffer.read(_MAX_SECRET_BYTES + 1)
        else:
            with Path(place).open("rb") as file:
                raw = file.read(_MAX_SECRET_BYTES + 1)
        text = raw.decode().strip("\ufeff \t\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise click.UsageError(f"The {what} in {place} cannot be read: {reason}.") from error
    if not text or len(raw) > _MAX_SECRET_BYTES:
        raise click.UsageError(f"{place} does not hold a {what}.")
    return text


def on_terminal() -> bool:
    """Whether a person can be asked."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def _token(options: global_options.Options, *, context: contexts.Context | None) -> str | None:
    if options.token_file:
        return read_secret(options.token_file, what="token")
    if options.token:
        printing.say(
            "Warning: a token given as an argument can be read by others on this machine: use "
            "--token-file or ENLIST_TOKEN."
        )
        return options.token
    if options.environment.get("ENLIST_TOKEN"):
        return options.environment["ENLIST_TOKEN"]
    if context is not None and context.token_file:
        return read_secret(str(Path(context.token_file).expanduser()), what="token")
    return None


def _ca(context: contexts.Context | None) -> str | None:
    if context is None or not context.ca_file:
        return None
    try:
        with Path(context.ca_file).expanduser().open("rb") as file:
            return file.read(_MAX_CA_BYTES).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"The CA file {context.ca_file} cannot be read.") from error
