"""The archive that goes to whoever helps: one tar.gz, 0600, without a secret in it.

Two nets hold secrets back. Each part is made of named public fields, and the private files are
never opened for it; then every text passes `scrub`, which puts dots in place of whatever looks like
one of ours (tokens, keys, passwords in URLs), wherever it came from. Known limit: a secret of
somebody else's, in a line that a person wrote into a label or a settings file, is not known as one.
"""

import contextlib
import datetime
import importlib.metadata
import io
import os
import pathlib
import platform
import re
import subprocess
import tarfile
from collections.abc import Iterable, Iterator, Mapping

from runtime_kit import private_files
from wire_protocol import product

MAX_BYTES = 32 * 1024 * 1024  # of all parts together
DOTS = "••••"
_COMMAND_SECONDS = 3.0
_MOST_OUTPUT = 65_536
_PACKAGES = ("aiohttp", "asyncpg", "click", "cryptography", "h11", "httpx", "pydantic", "pynacl",
             "pyopenssl", "structlog", "uvloop")  # fmt: skip

_SECRETS = (
    re.compile(r"en[a-z]_[0-9a-f]{16}_[0-9a-f]{64}_[0-9a-f]{8}"),  # tokens with a check
    re.compile(r"enj_[A-Za-z0-9_-]{16,}"),  # join tokens
    re.compile(r"emk_[0-9a-f]{64}"),  # master keys
    re.compile(r"AGE-SECRET-KEY-[A-Z0-9-]+"),  # whoever opens backups
    re.compile(
        r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(-----END [A-Z0-9 ]*PRIVATE KEY-----|\Z)",
        re.DOTALL,
    ),
    re.compile(r"(?<=://)[^/\s\"'@]*:[^/\s\"']*(?=@)"),  # user and password of a URL
    re.compile(r"(?i)(?<=password=)[^&\s\"']+"),
    re.compile(r"(?i)(?<=authorization: )\S+ ?\S*"),
)


def scrub(text: str) -> str:
    """The text with dots in place of whatever looks like a secret of ours."""
    for pattern in _SECRETS:
        text = pattern.sub(DOTS, text)
    return text


def write(path: pathlib.Path, parts: Iterable[tuple[str, bytes]], *, now: datetime.datetime) -> int:
    """Writes the archive aside and puts it in its place; the number of its parts.

    Raises `OSError` where it cannot be written.
    """
    stamp = f"{now:%Y%m%dT%H%M%SZ}"
    buffer = io.BytesIO()
    count, left = 0, MAX_BYTES
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in parts:
            clean = scrub(content.decode(errors="replace")).encode()[:left]
            left -= len(clean)
            info = tarfile.TarInfo(f"enlist-support-{stamp}/{name}")
            info.size, info.mode, info.mtime = len(clean), 0o600, int(now.timestamp())
            archive.addfile(info, io.BytesIO(clean))
            count += 1
    private_files.write_private(path, buffer.getvalue())
    return count


def of_machine(environment: Mapping[str, str]) -> Iterator[tuple[str, bytes]]:
    """What is said of the machine itself."""
    yield "versions.txt", "\n".join([*_versions(), ""]).encode()
    yield "environment.txt", "\n".join([*_environment(environment), ""]).encode()
    for name, command in (
        ("network/addresses.txt", ("ip", "address")),
        ("network/routes.txt", ("ip", "route", "show", "table", "all")),
        ("network/listening.txt", ("ss", "-ltn")),
        ("disks.txt", ("df", "-h")),
    ):
        yield name, _output(command)


def _versions() -> Iterator[str]:
    yield f"enlist {product.VERSION}"
    yield f"python {platform.python_version()}"
    yield f"kernel {platform.release()} {platform.machine()}"
    with contextlib.suppress(OSError):
        yield f"system {platform.freedesktop_os_release().get('PRETTY_NAME', '?')}"
    yield f"cpus {os.cpu_count()}"
    yield f"memory_bytes {os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES')}"
    for name in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            yield f"{name} {importlib.metadata.version(name)}"


def _environment(environment: Mapping[str, str]) -> Iterator[str]:
    """The names alone of what decides about Enlist: values may be secrets."""
    for name in sorted(environment):
        if name.startswith("ENLIST_") or name.lower().endswith("_proxy"):
            yield f"{name}={DOTS if environment[name] else ''}"


def _output(command: tuple[str, ...]) -> bytes:
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_COMMAND_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{' '.join(command)}: {error}\n".encode()
    return done.stdout[:_MOST_OUTPUT]
