"""`python -m platform_server engine`: how the host starts its engine. Nobody else needs it."""

import argparse
import sys

from platform_server.app import engine, orders


def main() -> int:
    """Reads the orders from the inherited descriptor and runs the engine."""
    parser = argparse.ArgumentParser(prog="python -m platform_server")
    parser.add_argument("program", choices=["engine"])
    parser.add_argument("--orders-fd", type=int, required=True)
    given = parser.parse_args()
    return engine.main(orders.read(given.orders_fd))


if __name__ == "__main__":
    sys.exit(main())
