"""How many files and sockets this process may have open: raised to what its work needs.

Many systems start programs with 1,024. Not for: going beyond the hard limit, which only the
administrator moves (`LimitNOFILE=` of the unit).
"""

import resource


def allow(number: int) -> bool:
    """Raises the soft limit to this number, or as far as the hard limit lets; says if it is met."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = number if hard == resource.RLIM_INFINITY else min(number, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted == number


def allowed() -> int:
    """The limit as it stands."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
