"""`python3 -m installer.checkup`: the same look for a machine on which no `enlist` starts.

For: a release whose Python a distribution upgrade took away. Any Python from 3.11 on does, in the
release's folder of packages (`cd …/lib/python3.*/site-packages`); it mends nothing.
"""

import json
import sys
from collections.abc import Sequence

from installer.checkup import around, checkup
from wire_protocol import findings, problems, product

_USAGE = "Use: python3 -m installer.checkup [-o json]\n"


def main(arguments: Sequence[str]) -> int:
    """Looks, tells, gives the exit code of `enlist doctor`."""
    if list(arguments) not in ([], ["-o", "json"]):
        sys.stderr.write(_USAGE)
        return int(problems.Exit.INVALID)
    found = [finding.within(one.place) for one in checkup.here() for finding in one.look()]
    if arguments:
        json.dump(findings.document(found, version=product.VERSION), sys.stdout, indent=2)
        sys.stdout.write("\n")
    else:
        for finding in found:
            text = f"{finding.status.value:8}{finding.name}  {finding.detail}\n"
            if finding.command:
                text += f"        Run: {finding.command}\n"
            sys.stdout.write(around.printable(text))
    return int(findings.exit_code(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
