"""`scripts/live-check [PROVIDER...]`: tries each provider that an account is set up for.

The exit code: 0 where none failed, 1 where one did. What is skipped is said and counted.
"""

import argparse
import os
import sys

from scripts.live import accounts, trying
from wire_protocol import cloud_words


def main(arguments: list[str]) -> int:
    """Tries them one after the other."""
    parser = argparse.ArgumentParser(prog="scripts/live-check", description=__doc__)
    parser.add_argument("provider", nargs="*", metavar="PROVIDER", help="none: all there are")
    wanted = parser.parse_args(arguments).provider or list(cloud_words.PROVIDERS)
    unknown = sorted(set(wanted) - set(cloud_words.PROVIDERS))
    if unknown:
        parser.error(f"there is no provider {unknown[0]}; {', '.join(cloud_words.PROVIDERS)}")
    where = accounts.folder(os.environ)
    passed, failed, skipped = 0, 0, 0
    for provider in wanted:
        try:
            account = accounts.find(provider, where=where)
            if account is None:
                skipped += 1
                _say(f"SKIPPED {provider}: no account, {where / f'{provider}.json'} is missing")
                continue
            _say(
                f"PASSED  {provider}: {trying.try_machine(account, say=_tell, environ=os.environ)}"
            )
            passed += 1
        except (accounts.Unusable, trying.Failed) as fault:
            failed += 1
            _say(f"FAILED  {provider}: {fault}")
    _say(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _tell(line: str) -> None:
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
