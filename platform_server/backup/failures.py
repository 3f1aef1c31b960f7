"""What can be wrong with a backup, its key or its target: each with its sentence and exit code."""

from typing import ClassVar

from wire_protocol import problems


class BackupFailure(Exception):
    """A backup cannot be made, read or restored: see which kind it is."""

    exit_code: ClassVar[int] = problems.Exit.OUR_FAULT


class NotFound(BackupFailure):
    """There is no such file: check its name."""

    exit_code = problems.Exit.NOT_FOUND


class NoBackup(BackupFailure):
    """The file is no backup of Enlist: check its name; nothing was changed."""

    exit_code = problems.Exit.INVALID


class Invalid(BackupFailure):
    """A recipient, an identity or a database URL is out of shape: the message names it."""

    exit_code = problems.Exit.INVALID


class WrongKey(BackupFailure):
    """The identity or passphrase does not open this backup: give the right one."""

    exit_code = problems.Exit.NOT_PERMITTED


class Damaged(BackupFailure):
    """The file is damaged or was cut off: take another copy or an older backup."""

    exit_code = problems.Exit.REFUSED


class Newer(BackupFailure):
    """The backup was made by a newer Enlist: install that version or a newer one."""

    exit_code = problems.Exit.NEEDS_OPERATOR


class TargetInUse(BackupFailure):
    """What would be restored into is not empty: nothing was changed."""

    exit_code = problems.Exit.CONFLICT


class Unwritable(BackupFailure):
    """The restore could not write: mend what the message names and run the same command again."""

    exit_code = problems.Exit.TEMPORARY
