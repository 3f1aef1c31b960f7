"""`enlist serve`: reads the flags, then runs the host. Not for: any decision of the Platform."""

import json
import os
import pathlib
import sys
from collections.abc import Mapping
from typing import Any, Final

import click

from platform_server.app import binding, data_dir, failures, host, orders
from platform_server.settings import layers, listing
from wire_protocol import problems


class InvalidUse(click.ClickException):
    """The settings or flags are out of shape; the message names them."""

    exit_code = int(problems.Exit.INVALID)


@click.command()
@click.option("--listen", metavar="HOST:PORT", help="Where the API listens [127.0.0.1:8440].")
@click.option("--public-url", metavar="URL", help="The https address by which others reach it.")
@click.option("--tls-cert-file", metavar="FILE", help="A certificate of your own for the API.")
@click.option("--tls-key-file", metavar="FILE", help="The key beside --tls-cert-file.")
@click.option(
    "--enrollment-port",
    is_flag=False,
    flag_value="8444",
    metavar="[PORT]",
    help="Open the port at which machines enroll [8444].",
)
@click.option(
    "--enrollment-address",
    multiple=True,
    metavar="IP|HOST",
    help="How machines reach that port; may repeat. [this machine's addresses]",
)
@click.option(
    "--enrollment-workers", type=int, metavar="N", help="Processes that share the port [1]."
)
@click.option(
    "--gateway-port",
    is_flag=False,
    flag_value="8445",
    metavar="[PORT]",
    help="The port at which nodes hold their session [8445 beside --enrollment-port]; or off.",
)
@click.option(
    "--mesh", is_flag=True, default=None, help="Connect the nodes by WireGuard, too; needs root."
)
@click.option(
    "--bundle-port",
    is_flag=False,
    flag_value="8446",
    metavar="[PORT]",
    help="Serve installer and bundles to new machines [8446].",
)
@click.option(
    "--database-url",
    metavar="URL",
    help="sqlite:///… or postgresql://…  [SQLite in the data directory]",
)
@click.option("--config", metavar="FILE", help="Settings file [config.toml in the data directory].")
@click.option("--print-config", is_flag=True, help="Print every setting and where it came from.")
@click.option("--data-dir", metavar="DIR", help="Where the Platform keeps its data.")
@click.option(
    "--output",
    "-o",
    type=click.Choice(["table", "json", "yaml"]),
    help="json: one line when ready.",
)
def serve(
    *,
    config: str | None,
    print_config: bool,
    data_dir: str | None,  # noqa: ARG001 - read with the other flags below
    output: str | None,
    **flags: Any,
) -> int:
    """Run a Platform.

    Stays in the foreground. SIGTERM drains and ends it, SIGHUP replaces the engine while the
    ports stay open.
    """
    _warn_of_password(flags["database_url"])
    chosen = output or os.environ.get("ENLIST_OUTPUT") or "table"
    place = _data_dir(click.get_current_context())
    request = host.Request(
        data_dir=place,
        config_file=None if config is None else pathlib.Path(config).absolute(),
        flags=_flags(flags),
        on_ready=lambda bound, ready: _say_ready(bound, ready, place=place, output=chosen),
    )
    try:
        if print_config:
            _print_config(request, output=chosen)
            return int(problems.Exit.DONE)
        return host.serve(request)
    except layers.InvalidSettings as fault:
        raise InvalidUse(str(fault)) from None
    except failures.CannotStart:
        raise
    except host.EngineRefused as fault:
        return fault.exit_code


# Which setting a flag sets.
SETTINGS: Final = {
    "listen": "api.listen",
    "public_url": "platform.public_url",
    "tls_cert_file": "api.tls_cert_file",
    "tls_key_file": "api.tls_key_file",
    "enrollment_port": "enrollment.port",
    "enrollment_address": "enrollment.addresses",
    "enrollment_workers": "enrollment.workers",
    "gateway_port": "gateway.port",
    "bundle_port": "bundles.port",
    "mesh": "mesh.enabled",
    "database_url": "store.database_url",
}


def _flags(given: Mapping[str, Any]) -> dict[str, layers.Given]:
    found: dict[str, layers.Given] = {}
    for flag, name in SETTINGS.items():
        value = given[flag]
        if value is None or value == ():
            continue
        found[name] = layers.Given(
            value=list(value) if isinstance(value, tuple) else value,
            source=f"flag --{flag.replace('_', '-')}",
        )
    return found


def _warn_of_password(database_url: str | None) -> None:
    if database_url is not None and listing.hide_password(database_url) != database_url:
        sys.stderr.write(
            "Warning: every account on this machine can read a password on the command line; put "
            "the URL into the settings file or into ENLIST_STORE__DATABASE_URL.\n"
        )


def _data_dir(context: click.Context) -> pathlib.Path:
    typed = context.params.get("data_dir")
    return (pathlib.Path(typed) if typed else data_dir.default(environ=os.environ)).absolute()


def _print_config(request: host.Request, *, output: str) -> None:
    loaded = layers.load(
        request.data_dir,
        config_file=request.config_file,
        environ=os.environ,
        flags=request.flags,
    )
    if output == "table":
        click.echo(listing.as_toml(loaded), nl=False)
    elif output == "json":
        click.echo(json.dumps([line.as_json() for line in listing.lines(loaded)]))
    else:
        import yaml  # noqa: PLC0415 - costs start-up time that nobody else need pay

        content = [dict(line.as_json()) for line in listing.lines(loaded)]
        click.echo(yaml.safe_dump(content, sort_keys=False), nl=False)


def _say_ready(
    bound: binding.Bound, ready: orders.Ready, *, place: pathlib.Path, output: str
) -> None:
    if output != "json":
        sys.stderr.write(f"The Platform is ready: {bound.api_url}\n")
        return
    line = {
        "version": ready.version,
        "api": bound.api_url,
        "enrollment": bound.enrollment_url,
        "gateway": next(iter(bound.gateway_urls), None),
        "bundle": bound.bundle_url,
        "pins": list(ready.pins),
        "gateway_pins": list(ready.gateway_pins),
        "data_dir": str(place),
        "api_pins": list(ready.api_pins),
    }
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()
