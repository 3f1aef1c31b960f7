"""The start of the command line: `enlist`.

`TABLE` names every command, where it lives and what it is for; each is imported only when it is
called. To hang a command of another package in, add its line. A command ends in an exit code to
the letter of interface.md: it returns (0), or raises what `failures.py` knows: any exception with
an `exit_code`, or one of click's. Not for: what a command does.
"""

import gc
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import click

TABLE: dict[str, tuple[str, str]] = {
    "serve": ("platform_server.command:serve", "Run a Platform."),
    "worker": ("operator_cli.commands.worker:worker", "Join this machine to a Platform."),
    "agent": ("worker_agent.command:agent", "Run this machine's Agent."),
    "nodes": ("operator_cli.commands.nodes:nodes", "List, enroll and remove nodes."),
    "operations": (
        "operator_cli.commands.operations:operations",
        "Look at what takes time, such as orders of machines and updates of nodes.",
    ),
    "cloud": ("operator_cli.commands.cloud:cloud", "Machines from providers, and what they cost."),
    "tokens": ("operator_cli.commands.tokens:tokens", "API tokens for people and programs."),
    "audit": ("operator_cli.commands.audit:audit", "The log of what was done, by whom."),
    "events": ("operator_cli.commands.events:events", "What happened, and what happens now."),
    "platform": ("operator_cli.commands.platform:platform", "The Platform and its keys."),
    "backup": ("operator_cli.commands.backup:backup", "Back the Platform up, and restore it."),
    "doctor": (
        "operator_cli.commands.doctor:doctor",
        "Say what is wrong on this machine, and what mends it.",
    ),
    "config": ("operator_cli.commands.config:config", "Which Platform commands talk to."),
    "completion": (
        "operator_cli.commands.completion:completion",
        "Completion for bash, zsh and fish.",
    ),
}


def build() -> "click.Group":
    """The root command itself, for tools that walk the tree."""
    from operator_cli import root  # noqa: PLC0415 - as in `run`

    return root.build(TABLE)


def main() -> None:
    """Runs the command in `sys.argv` and leaves with its exit code."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Runs one command and returns its exit code; prints its failure, if any, to stderr."""
    # Loading modules makes much garbage-collector work and no garbage: a tenth of the start.
    gc.disable()
    from operator_cli import root  # noqa: PLC0415 - after the collector is off

    gc.enable()
    return root.run(arguments, table=TABLE)


if __name__ == "__main__":
    main()
