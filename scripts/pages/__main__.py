"""`scripts/docs`: writes the made parts of docs/ anew; `--check` only says which have drifted."""

import argparse
import sys

from scripts.pages import made


def main(arguments: list[str]) -> int:
    """The exit code: 1 where `--check` found a page that is not as the code says."""
    parser = argparse.ArgumentParser(prog="scripts/docs", description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing")
    given = parser.parse_args(arguments)
    drifted = made.drifted()
    for page, text in drifted.items():
        if not given.check:
            page.write_text(text, encoding="utf-8")
        sys.stdout.write(f"{page.relative_to(made.ROOT)}\n")
    return 1 if given.check and drifted else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
