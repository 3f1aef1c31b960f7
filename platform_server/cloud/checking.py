"""Tries a credential and says what it is and what it lacks, without creating anything.

A clear refusal is a finding; an unclear answer is a `Fault`, for nothing can be said then. Rights
that machines do not need (for volumes, snapshots, addresses) are told and stop nothing. Where the
connection federates, our own issuer is looked at first, from outside, as the provider will.
"""

import dataclasses
import datetime
import json
from collections.abc import Sequence
from typing import Any, Final

from platform_server.cloud import connections, machines, opening, pausing, using
from platform_server.cloud.issuer import keys as issuer_keys
from platform_server.cloud.issuer import outside
from platform_server.store import contract as store_contract
from provisioning import contract, credentials, outcomes
from runtime_kit import clock as clock_kit
from runtime_kit import secret as secret_kit
from wire_protocol import times

_OLD: Final = datetime.timedelta(days=90)
_CLEAR: Final = (
    outcomes.Outcome.AUTH_LOST,
    outcomes.Outcome.CLOCK,
    outcomes.Outcome.NOT_DONE_PERMANENT,
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What a check found. `refused` is the provider's sentence where it knows us not (yet).

    `fits` of the wanted machines can be ordered, None where the provider does not say.
    """

    validation: contract.Validation | None
    refused: str | None
    warnings: Sequence[str]
    at: datetime.datetime
    fits: int | None = None
    calls: Sequence[contract.ApiCall] = dataclasses.field(default=(), repr=False)
    capabilities: frozenset[contract.Capability] = frozenset()
    hints: Sequence[str] = ()  # what a refusal told beside its sentence
    sees_known: bool = True  # one at least of the machines that were named is there for it

    @property
    def is_well(self) -> bool:
        """Whether machines can be ordered, as far as can be known without ordering one."""
        return self.refused is None and self.validation is not None and not self.validation.missing

    @property
    def trouble(self) -> str:
        """What stands in the way, as a sentence."""
        if self.refused is not None:
            return self.refused
        missing = ", ".join(self.validation.missing) if self.validation else ""
        return f"The credential works and lacks rights: {missing}."


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What a check needs."""

    store: store_contract.Store
    clouds: using.StoredClouds
    clock: clock_kit.Clock
    issuer_url: str | None
    installation: str = ""


async def check(
    means: Means,
    *,
    connection: connections.Connection,
    secret: secret_kit.Secret | None,
    actor: str,
    wanted: int = 1,
    known: Sequence[machines.Machine] = (),
) -> Checked:
    """Tries it; raises `outcomes.Fault` (no clear answer) and `StoreError` (not recorded).

    `known` are machines of ours, of which the credential has to see one: not every provider says
    which account a token is of.
    """
    warnings = [*await _look_from_outside(means, connection), *_age(means, connection)]
    validation: contract.Validation | None = None
    refused: str | None = None
    hints: Sequence[str] = ()
    sees_known = True
    calls: Sequence[contract.ApiCall] = ()
    able: frozenset[contract.Capability] = frozenset()
    try:
        async with means.clouds.trial(connection, secret=secret, actor=actor) as driver:
            calls, able = driver.calls, driver.capabilities
            validation = await driver.validate()
            sees_known = not known or await _sees_any(driver, known)
    except outcomes.Fault as fault:
        if fault.outcome not in _CLEAR:
            raise
        refused, hints = str(fault), fault.hints
    fits: int | None = None
    if validation is not None:
        validation, spare = pausing.without_spare(validation, calls=calls)
        warnings.extend([*validation.warnings, *(f"The right {one} is missing." for one in spare)])
        if validation.room is not None:
            fits = max(0, min(wanted, validation.room))
            if fits < wanted:
                warnings.append(f"Of {wanted} machines, {fits} fit into the account's limits.")
    return Checked(
        validation=validation,
        refused=refused,
        warnings=warnings,
        at=means.clock.now(),
        fits=fits,
        calls=calls,
        capabilities=able,
        hints=hints,
        sees_known=sees_known,
    )


async def _sees_any(driver: contract.Driver, known: Sequence[machines.Machine]) -> bool:
    for machine in known:
        if await driver.describe(machine.provider_ref or "", region=machine.region) is not None:
            return True
    return False


def with_findings(
    connection: connections.Connection, *, checked: Checked
) -> connections.Connection:
    """The connection as it stands after the check."""
    validation = checked.validation
    found: dict[str, Any] = {
        "ok": checked.is_well,
        "refused": checked.refused,
        "warnings": list(checked.warnings),
        "missing": [],
        "unproved": [],
        "room": None,
        "capabilities": sorted(checked.capabilities),
        "at": times.to_rfc3339(checked.at),
    }
    if validation is not None:
        found |= {
            "missing": list(validation.missing),
            "unproved": list(validation.unproved),
            "room": validation.room,
            "details": json.loads(json.dumps(dict(validation.details), default=str)),
        }
    return dataclasses.replace(
        connection,
        account=connection.account if validation is None else validation.account,
        principal=connection.principal if validation is None else validation.principal,
        checked_at=checked.at,
        checked=found,
    )


async def _look_from_outside(means: Means, connection: connections.Connection) -> Sequence[str]:
    url = means.issuer_url
    if connection.credential_kind not in opening.FEDERATING or url is None:
        return ()
    shown = await means.store.read(lambda tx: issuer_keys.list_shown(tx, now=means.clock.now()))
    return await outside.find_problems(url, shown=shown)


def _age(means: Means, connection: connections.Connection) -> Sequence[str]:
    age = means.clock.now() - connection.credential_at
    if connection.credential_kind in credentials.LONG_LIVED and age > _OLD:
        sentence = (
            f"The secret is {age.days} days old. Make another one at the provider, save it over "
            "this connection, then delete the old one there."
        )
        return [sentence]
    return ()
