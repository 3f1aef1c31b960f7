"""What a worker stands on: its folder, its files, its identity, its trust set. Asks nobody."""

import datetime
import os
import shutil

from cryptography import x509

from wire_protocol import findings, problems, times
from worker_agent.doctor import seen as seen_kit
from worker_agent.identity import own

LEAST_FREE_BYTES = 16 * 1024 * 1024  # a trust set of 200 KB is written aside before it replaces
LEAST_FREE_FILES = 64
SOON = datetime.timedelta(days=30)


def disk(seen: seen_kit.Seen) -> tuple[findings.Finding, ...]:
    """Room for what is written aside, and that it may be written at all."""
    folder = seen.where.folder
    usage = shutil.disk_usage(folder)
    info = os.statvfs(folder)
    facts = {"free_bytes": usage.free, "free_files": info.f_favail}
    if info.f_flag & os.ST_RDONLY:
        return (
            findings.needs_operator(
                "disk",
                f"{folder} lies on a file system that is mounted read-only.",
                command=f"findmnt -T {folder}",
                facts=facts,
            ),
        )
    if usage.free < LEAST_FREE_BYTES or (info.f_files > 0 and info.f_favail < LEAST_FREE_FILES):
        return (
            findings.needs_operator(
                "disk",
                f"The disk under {folder} is full: {usage.free // 1024} KB and "
                f"{info.f_favail} files are free.",
                command=f"df -h {folder}; df -i {folder}",
                facts=facts,
            ),
        )
    return (findings.ok("disk", f"{usage.free // 1_048_576} MB are free.", facts=facts),)


def joined(seen: seen_kit.Seen) -> tuple[findings.Finding, ...]:
    """Whether this machine is a node, and whether its files are those of one machine."""
    agent, join = seen.agent, seen.join
    if agent is None or join is None:
        if seen.faults:
            return (findings.skipped("joined", "A file is damaged; see files."),)
        return (
            findings.needs_operator(
                "joined",
                f"This machine has not joined a Platform (data directory {seen.where.folder}).",
                command=f"enlist worker join - --data-dir {seen.where.folder}",
            ),
        )
    mixed = _mixed(seen)
    if mixed is not None:
        return (
            findings.needs_operator(
                "joined",
                f"{mixed}: files of two machines were mixed.",
                command="enlist worker join -   (with a new token, or restore this machine's own)",
            ),
        )
    return (
        findings.ok(
            "joined",
            f"Node {agent.node_id} of {join.platform_url}, {agent.connectivity.value}, since "
            f"{agent.joined_at:%Y-%m-%d}.",
            facts={
                "node_id": agent.node_id,
                "agent_id": agent.agent_id,
                "generation": agent.generation,
                "connectivity": agent.connectivity.value,
                "platform_id": join.platform_id,
                "platform_url": join.platform_url,
                "authenticated_by": join.mode.value,
            },
        ),
    )


def _mixed(seen: seen_kit.Seen) -> str | None:
    agent, join, held = seen.agent, seen.join, seen.held
    if agent is None or join is None:
        return None
    if agent.node_id != join.node_id:
        return (
            f"{seen.where.join} is of node {join.node_id}, and {seen.where.agent} of node "
            f"{agent.node_id}"
        )
    if held is not None and held.statement.platform_id != join.platform_id:
        return f"{seen.where.trust} is another Platform's than {seen.where.join}"
    certificate = seen.identity.certificate
    if certificate is not None and (named := _names(certificate)) and agent.node_id not in named:
        return f"{seen.where.certificate} is of {', '.join(named)}, not of {agent.node_id}"
    return None


def identity(seen: seen_kit.Seen, *, now: datetime.datetime) -> tuple[findings.Finding, ...]:
    """The key, that the certificate is its own, and the certificate's dates."""
    found, where = seen.identity, seen.where
    if found.key is None or found.certificate is None:
        if not seen.has_joined and found.fault is None:
            return (findings.skipped("identity", "There is none before the join."),)
        return (
            findings.needs_operator(
                "identity",
                found.fault or f"{where.identity} holds no key and certificate.",
                command="enlist worker join -   (with a new token; or restore the files)",
            ),
        )
    certificate = found.certificate
    facts = {
        "pin": own.pin_of(certificate),
        "not_before": times.to_rfc3339(certificate.not_valid_before_utc),
        "not_after": times.to_rfc3339(certificate.not_valid_after_utc),
        "next_waits": where.next_certificate.exists(),
    }
    ends = certificate.not_valid_after_utc
    lasts = ends - certificate.not_valid_before_utc
    if now < ends < now + min(SOON, lasts / 6):
        return (
            findings.warning(
                "identity",
                f"The certificate ends on {ends:%Y-%m-%d}; a running Agent renews it long before.",
                command="enlist worker renew",
                facts=facts,
            ),
        )
    if ends < now:
        # The Platform judges no dates of it, so this is work for the Agent and no outage.
        return (
            findings.warning(
                "identity",
                f"The certificate ended on {ends:%Y-%m-%d}; the key counts on, and renews it.",
                command="enlist worker renew",
                facts=facts,
            ),
        )
    if certificate.not_valid_before_utc > now:
        return (
            findings.warning(
                "identity",
                f"The certificate begins on {certificate.not_valid_before_utc:%Y-%m-%d %H:%M} UTC,"
                " so this machine's clock was or is wrong.",
                command="timedatectl",
                facts=facts,
            ),
        )
    return (
        findings.ok("identity", f"Key and certificate fit, until {ends:%Y-%m-%d}.", facts=facts),
    )


def _names(certificate: x509.Certificate) -> list[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return []
    return names.get_values_for_type(x509.DNSName)


def trust(seen: seen_kit.Seen, *, now: datetime.datetime) -> tuple[findings.Finding, ...]:
    """The trust keys held: which are valid now, and when the last of them ends."""
    held = seen.held
    if held is None:
        return (findings.skipped("trust", "There is none before the join."),)
    statement = held.statement
    valid = held.keys_valid_at(now)
    facts = {
        "epoch": statement.epoch,
        "serial": statement.serial,
        "issued_at": times.to_rfc3339(statement.issued_at),
        "keys": [
            {
                "key_id": key.key_id,
                "not_before": times.to_rfc3339(key.not_before),
                "not_after": times.to_rfc3339(key.not_after),
                "valid_now": key.is_valid_at(now),
            }
            for key in statement.trust_keys
        ],
    }
    if not valid:
        return (
            findings.needs_operator(
                "trust",
                "No trust key held here is valid now, so the Platform is refused until the set is "
                "renewed. Also check this machine's clock.",
                command="enlist worker refresh-trust",
                facts=facts,
            ),
        )
    last = max(key.not_after for key in statement.trust_keys)
    if last - now < SOON:
        return (
            findings.warning(
                "trust",
                f"The last trust key held here ends on {last:%Y-%m-%d}.",
                command="enlist worker refresh-trust",
                kind=problems.Kind.NEEDS_OPERATOR,
                facts=facts,
            ),
        )
    return (
        findings.ok(
            "trust",
            f"Set {statement.epoch}.{statement.serial}, {len(valid)} keys valid now, the last "
            f"until {last:%Y-%m-%d}.",
            facts=facts,
        ),
    )
