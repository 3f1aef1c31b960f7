"""How many files and sockets this process may have open.

For: programs that hold many connections. What starts a process usually sets a low soft limit, since
``select`` cannot count beyond 1,024, and leaves the hard one for those who do without it.
Known limit: the hard limit stays; a unit raises it with ``LimitNOFILE``.
"""

import contextlib
import resource


def raise_limit(wanted: int) -> int:
    """Raise the soft limit to as many as wanted, or to the hard limit; gives what holds now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < target:
        with contextlib.suppress(OSError, ValueError):  # a sandbox may say no
            resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
