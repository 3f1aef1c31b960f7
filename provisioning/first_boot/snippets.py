"""What an operator adds to first boot: a cloud-config or a script, in the form that it should have.

Editors leave a byte-order mark, carriage returns or a blank line above the header, and cloud-init
then ignores all of it without a word. Here it is put right where its meaning is plain, and refused
with a sentence where it is not.

Known limit: ASCII, since one exotic character has made a provider drop a machine.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

import yaml

MOST_BYTES: Final = 4000
SCRIPT_PLACE: Final = "/var/lib/cloud/scripts/per-instance/90-operator"
_MARK: Final = "\ufeff"
_CONFIG: Final = "#cloud-config"
# Keys under which an order of the operator's would undo what the machine is for.
_OURS: Final = frozenset(
    {"power_state", "datasource", "datasource_list", "cloud_init_modules", "ssh_pwauth"}
)
_JOINED: Final = ("bootcmd", "write_files")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Snippet:
    """A checked snippet, as a mapping of cloud-config; a script is a file that it writes."""

    config: Mapping[str, Any]


def parse_snippet(text: str) -> Snippet:
    """Reads a snippet; raises `ValueError` saying what is wrong and what the form is."""
    plain = text.replace(_MARK, "").replace("\r\n", "\n").replace("\r", "\n").lstrip("\n \t")
    if len(plain) > MOST_BYTES:
        raise ValueError(f"The snippet has {len(plain)} characters; at most {MOST_BYTES} fit.")
    for number, line in enumerate(plain.splitlines(), start=1):
        if not line.isascii():
            raise ValueError(f"Line {number} of the snippet holds characters that are not ASCII.")
        if any(c < " " and c != "\t" for c in line) or "\x7f" in line:
            raise ValueError(f"Line {number} of the snippet holds a control character.")
    first = plain.split("\n", 1)[0].rstrip()
    if first == _CONFIG:
        return Snippet(config=_config(plain))
    if first.startswith("#!"):
        script = plain if plain.endswith("\n") else f"{plain}\n"
        file = {"path": SCRIPT_PLACE, "permissions": "0700", "content": script}
        return Snippet(config={"write_files": [file]})
    raise ValueError(
        "A snippet begins with #cloud-config, or with #! where it is a script; "
        f"this one begins with {first[:40]!r}."
    )


def merged(ours: Mapping[str, Any], snippet: Snippet) -> dict[str, Any]:
    """Both in one document: lists that both have follow one another, ours first."""
    together: dict[str, Any] = dict(ours)
    for key, value in snippet.config.items():
        together[key] = [*together[key], *value] if key in together else value
    return together


def _config(text: str) -> dict[str, Any]:
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError as error:
        where = getattr(error, "problem_mark", None)
        line = "" if where is None else f" at line {where.line + 1}"
        problem = getattr(error, "problem", None) or "it cannot be read"
        raise ValueError(f"The snippet is no YAML{line}: {problem}.") from None
    if found is None:
        return {}
    if not isinstance(found, dict) or not all(isinstance(key, str) for key in found):
        raise ValueError("A cloud-config is a mapping of keys, one a line.")
    taken = sorted(_OURS & found.keys())
    if taken:
        raise ValueError(f"The snippet may not set {', '.join(taken)}: a node depends on it.")
    for key in _JOINED:
        if key in found and not isinstance(found[key], list):
            raise ValueError(f"In a cloud-config {key} is a list.")
    return found
