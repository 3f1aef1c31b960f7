"""`enlist backup`: making a backup asks the Platform that runs; the rest needs none.

`restore` and `verify` are the Platform's own commands (platform_server.backup_command), reached by
name.
"""

from operator_cli import lazy

_TABLE = {
    "create": (
        "operator_cli.commands.backup_create:create",
        "Write the whole Platform into one encrypted file, while it runs.",
    ),
    "verify": (
        "platform_server.backup_command:verify",
        "Read a backup to its end and say what it holds.",
    ),
    "restore": (
        "platform_server.backup_command:restore_",
        "Fill an empty data directory and an empty database from a backup.",
    ),
}

_TEXT = """Back the Platform up, and restore it.

Examples:
  enlist backup create nightly.enlist --recipient age1…
  enlist backup verify nightly.enlist --identity-file key.txt
  enlist backup restore nightly.enlist --identity-file key.txt
"""

backup = lazy.LazyGroup("backup", table=_TABLE, text=_TEXT)
