"""Folders in one another, more than any path can name: as root in a machine may make them."""

import os
import pathlib

LEVELS = 3000
"""Past what Python descends into by calls, and past PATH_MAX."""


def make(top: pathlib.Path, *, levels: int = LEVELS) -> None:
    """Each in the one before, below `top`."""
    at = os.open(top, os.O_DIRECTORY)
    try:
        for _ in range(levels):
            os.mkdir("abc", dir_fd=at)
            below = os.open("abc", os.O_DIRECTORY, dir_fd=at)
            os.close(at)
            at = below
    finally:
        os.close(at)
