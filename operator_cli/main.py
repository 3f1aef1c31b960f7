"""The root of the command line: `enlist`.

`TABLE` names every command and where it lives; each is imported only when it is called. To hang
a command of another package in, add its line. A command ends in an exit code to the letter of
interface.md: it returns (0), or raises something `failures.py` knows, which is any exception with
an `exit_code`, an `OSError`, or a click exception. Not for: what a command does.
"""

import sys
from collections.abc import Sequence

import click

from operator_cli import global_options, lazy

TABLE = {
    "serve": lazy.Entry("platform_server.command:serve", "Run a Platform."),
    "worker": lazy.Entry("worker_agent.command:worker", "Join this machine to a Platform."),
    "agent": lazy.Entry("worker_agent.command:agent", "Run this machine's Agent."),
    "nodes": lazy.Entry("operator_cli.commands.nodes:nodes", "List, enroll and remove nodes."),
    "tokens": lazy.Entry(
        "operator_cli.commands.tokens:tokens", "API tokens for people and programs."
    ),
    "audit": lazy.Entry("operator_cli.commands.audit:audit", "The log of what was done, by whom."),
    "events": lazy.Entry("operator_cli.commands.events:events", "What happens, as it happens."),
    "platform": lazy.Entry("operator_cli.commands.platform:platform", "The Platform and its keys."),
    "config": lazy.Entry("operator_cli.commands.config:config", "Which Platform commands talk to."),
    "completion": lazy.Entry(
        "operator_cli.commands.completion:completion", "Completion for bash, zsh and fish."
    ),
}

_TEXT = """Turn machines into trusted nodes of your platform.

Examples:
  enlist serve --enrollment-port
  enlist nodes enroll-token web-1
  enlist nodes list -o json
"""


def build() -> click.Group:
    """The root command with every global option."""
    root = lazy.LazyGroup("enlist", table=TABLE, text=_TEXT)
    global_options.attach(root, hidden=False)
    return root


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs one command and leaves with its exit code."""
    sys.exit(run(list(sys.argv[1:] if arguments is None else arguments)))


def run(arguments: Sequence[str]) -> int:
    """Runs one command and returns its exit code; prints its failure, if any, to stderr."""
    options = global_options.Options()
    try:
        answer = build().main(
            args=list(arguments), prog_name="enlist", standalone_mode=False, obj=options
        )
    except SystemExit as leaving:
        code = leaving.code
        return code if isinstance(code, int) else int(code is not None)
    except BaseException as error:  # noqa: BLE001 - each one ends in an exit code
        from operator_cli import failures  # noqa: PLC0415 - only a failure pays for it

        return failures.tell(error, debug=options.debug)
    return answer if isinstance(answer, int) else 0


if __name__ == "__main__":
    main()
