"""Whether a rule set of nftables lets a new TCP connection from a stranger through to a port.

Pure: the JSON of `nft -j list ruleset` in, a verdict out. A rule is matched with one of three
answers (yes, no, maybe), and what hangs on a maybe (a source address, an interface, a rate, a
match of the iptables kind) makes the verdict `DEPENDS`. Known limit: rules before the input hook
(ingress, prerouting) are not looked at.
"""

import dataclasses
import enum
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_MOST_JUMPS = 16  # the kernel's own limit
_ACCEPT, _DROP, _GO_ON, _RETURN = "accept", "drop", "go on", "return"
_ENDS = {"accept": _ACCEPT, "queue": _ACCEPT, "drop": _DROP, "reject": _DROP, "return": _RETURN}
_INNER = {"lo"}
_OTHERS = {"udp", "udplite", "icmp", "icmpv6", "igmp", "sctp", "dccp", "ah", "esp", "comp"}


class Verdict(enum.Enum):
    """What becomes of the connection."""

    OPEN = "open"
    DEPENDS = "depends"
    BLOCKED = "blocked"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The verdict, and the chain that decided where it is not open."""

    verdict: Verdict
    family: str = ""
    table: str = ""
    chain: str = ""


class _Match(enum.Enum):
    NO = 0
    MAYBE = 1
    YES = 2


Rule = Sequence[Mapping[str, Any]]


def judge(ruleset: Mapping[str, Any], *, port: int) -> Judgement:
    """The worst verdict of the chains at the input hook, IPv4 counted before IPv6."""
    found = _Ruleset(ruleset, port=port)
    worst = Judgement(verdict=Verdict.OPEN)
    for family, table, chain, policy in found.inputs():
        outcomes = found.walk((family, table, chain), depth=0)
        if _GO_ON in outcomes:
            outcomes = (outcomes - {_GO_ON}) | {policy}
        verdict = _verdict(outcomes)
        if family == "ip6" and verdict is Verdict.BLOCKED:
            verdict = Verdict.DEPENDS  # by IPv4 it may still be reached
        if _rank(verdict) > _rank(worst.verdict):
            worst = Judgement(verdict=verdict, family=family, table=table, chain=chain)
    return worst


def _verdict(outcomes: frozenset[str]) -> Verdict:
    if outcomes == {_DROP}:
        return Verdict.BLOCKED
    return Verdict.DEPENDS if _DROP in outcomes else Verdict.OPEN


def _rank(verdict: Verdict) -> int:
    return list(Verdict).index(verdict)


class _Ruleset:
    def __init__(self, ruleset: Mapping[str, Any], *, port: int) -> None:
        self._port = port
        self._rules: dict[tuple[str, str, str], list[Rule]] = {}
        self._sets: dict[tuple[str, str, str], Any] = {}
        self._inputs: list[tuple[str, str, str, str]] = []
        for entry in ruleset.get("nftables", ()):
            for kind, one in entry.items():
                self._take(kind, one)

    def _take(self, kind: str, one: Mapping[str, Any]) -> None:
        place = (str(one.get("family")), str(one.get("table")))
        if kind == "rule":
            self._rules.setdefault((*place, str(one["chain"])), []).append(one.get("expr", ()))
        elif kind in ("set", "map"):
            self._sets[(*place, str(one["name"]))] = one.get("elem", ())
        elif kind == "chain" and one.get("hook") == "input" and place[0] in ("ip", "ip6", "inet"):
            self._inputs.append((*place, str(one["name"]), str(one.get("policy", _ACCEPT))))

    def inputs(self) -> Iterator[tuple[str, str, str, str]]:
        """The chains at the input hook: family, table, name, policy."""
        return iter(self._inputs)

    def walk(self, chain: tuple[str, str, str], *, depth: int) -> frozenset[str]:
        """All outcomes that this chain may have for the connection."""
        outcomes: set[str] = set()
        if depth > _MOST_JUMPS:
            return frozenset({_ACCEPT, _DROP})
        for rule in self._rules.get(chain, ()):
            match, ends = self._apply(rule, chain=chain, depth=depth)
            outcomes |= ends - {_GO_ON}
            if match is _Match.YES and ends and _GO_ON not in ends:
                return frozenset(outcomes - {_RETURN}) | (
                    {_GO_ON} if _RETURN in outcomes else frozenset()
                )
        return frozenset(outcomes - {_RETURN}) | {_GO_ON}

    def _apply(
        self, rule: Rule, *, chain: tuple[str, str, str], depth: int
    ) -> tuple[_Match, frozenset[str]]:
        """How the rule matches, and where it may lead."""
        match = _Match.YES
        for expression in rule:
            for kind, one in expression.items():
                if kind == "match":
                    match = min(match, self._matches(one, chain=chain), key=lambda m: m.value)
                    if match is _Match.NO:
                        return match, frozenset()
                elif kind == "xt" and _name_of(one) in ("DROP", "REJECT"):
                    return match, frozenset({_DROP})
                elif kind in ("limit", "xt", "ct count"):
                    match = _Match.MAYBE
                else:
                    ends = self._ends(kind, one, chain=chain, depth=depth)
                    if ends:
                        return match, ends
        return match, frozenset()

    def _ends(
        self, kind: str, one: Any, *, chain: tuple[str, str, str], depth: int
    ) -> frozenset[str]:
        if kind in _ENDS:
            return frozenset({_ENDS[kind]})
        if kind == "vmap":
            return self._of_map(one, chain=chain, depth=depth)
        if kind not in ("jump", "goto"):
            return frozenset()
        found = self.walk((*chain[:2], str(one["target"])), depth=depth + 1)
        if kind == "goto" and _GO_ON in found:  # the way back leads past this chain
            return (found - {_GO_ON}) | {_RETURN}
        return found

    def _of_map(
        self, one: Mapping[str, Any], *, chain: tuple[str, str, str], depth: int
    ) -> frozenset[str]:
        """A verdict map: the first entry that surely matches, else all that may."""
        found: frozenset[str] = frozenset({_GO_ON})
        for pair in self._elements(one.get("data"), chain=chain):
            key, verdict = pair[0], pair[1]
            same = {"op": "==", "left": one.get("key", {}), "right": key}
            match = self._matches(same, chain=chain)
            if match is _Match.NO:
                continue
            ends: frozenset[str] = frozenset()
            for kind, value in verdict.items():
                ends |= self._ends(kind, value, chain=chain, depth=depth)
            if match is _Match.YES:
                return ends or frozenset({_GO_ON})
            found |= ends
        return found

    def _elements(self, data: Any, *, chain: tuple[str, str, str]) -> Sequence[Any]:
        if isinstance(data, str) and data.startswith("@"):
            data = self._sets.get((*chain[:2], data[1:]), ())
        if isinstance(data, Mapping):
            data = data.get("set", (data,))
        if isinstance(data, str | int):
            return (data,)
        return tuple(data or ())

    def _matches(self, one: Mapping[str, Any], *, chain: tuple[str, str, str]) -> _Match:
        left = one.get("left", {})
        if _is_of_another_protocol(left):
            return _Match.NO  # `udp dport != 53` is about UDP, whatever the port
        answer = self._answer(left, one.get("right"), chain=chain)
        if one.get("op") == "!=" and answer is not _Match.MAYBE:
            return _Match.NO if answer is _Match.YES else _Match.YES
        return answer

    def _answer(self, left: Any, right: Any, *, chain: tuple[str, str, str]) -> _Match:
        if not isinstance(left, Mapping):
            return _Match.MAYBE
        values = self._elements(right, chain=chain)
        for kind, answer in (("payload", self._payload), ("meta", _meta), ("ct", _state)):
            if isinstance(left.get(kind), Mapping):
                return answer(left[kind], values)
        return _Match.MAYBE

    def _payload(self, payload: Mapping[str, Any], values: Sequence[Any]) -> _Match:
        if payload.get("protocol") in ("tcp", "th") and payload.get("field") == "dport":
            return _yes(any(_holds(value, self._port) for value in values))
        if payload.get("field") in ("protocol", "nexthdr"):
            return _yes(_is_tcp(values))
        return _Match.MAYBE


def _meta(meta: Mapping[str, Any], values: Sequence[Any]) -> _Match:
    if meta.get("key") == "l4proto":
        return _yes(_is_tcp(values))
    if meta.get("key") in ("iif", "iifname"):
        return _Match.NO if set(map(str, values)) <= _INNER else _Match.MAYBE
    return _Match.MAYBE


def _state(state: Mapping[str, Any], values: Sequence[Any]) -> _Match:
    return _yes("new" in values) if state.get("key") == "state" else _Match.MAYBE


def _is_tcp(values: Sequence[Any]) -> bool:
    return any(value in ("tcp", 6) for value in values)


def _name_of(one: Any) -> str:
    return str(one.get("name")) if isinstance(one, Mapping) else ""


def _is_of_another_protocol(left: Any) -> bool:
    payload = left.get("payload") if isinstance(left, Mapping) else None
    return isinstance(payload, Mapping) and payload.get("protocol") in _OTHERS


def _holds(value: Any, port: int) -> bool:
    if isinstance(value, Mapping):
        low, high = (*value.get("range", ()), -1, -1)[:2]
        elem = value.get("elem")
        if isinstance(elem, Mapping):
            return _holds(elem.get("val"), port)
        return isinstance(low, int) and isinstance(high, int) and low <= port <= high
    return bool(value == port)


def _yes(answer: bool) -> _Match:  # noqa: FBT001 - one truth value, made a match
    return _Match.YES if answer else _Match.NO
