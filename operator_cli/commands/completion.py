"""`enlist completion`: the script that teaches a shell our commands."""

import click
from click import shell_completion

from operator_cli import global_options

_SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_ENLIST_COMPLETE"


@click.command("completion", cls=global_options.Command)
@click.argument("shell", type=click.Choice(_SHELLS))
def completion(shell: str) -> None:
    """Print the completion script for SHELL.

    Examples:
      echo 'eval "$(enlist completion bash)"' >> ~/.bashrc
      enlist completion zsh > "${fpath[1]}/_enlist"
      enlist completion fish > ~/.config/fish/completions/enlist.fish
    """
    found = shell_completion.get_completion_class(shell)
    if found is None:
        raise click.UsageError(f"There is no completion for {shell}.")
    root = click.get_current_context().find_root().command
    script = found(root, {}, "enlist", VARIABLE)
    # Not `source()`: for bash that starts a bash only to ask for its version.
    click.echo(script.source_template % script.source_vars())
