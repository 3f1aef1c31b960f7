"""The enrollment listener: the one public port, in a process of its own.

It holds a TLS key and the path of a Unix socket, nothing else. Exactly two requests pass:
``POST /api/v1/enroll`` and ``POST /api/v1/trust``, by exact match on the raw target; all else is
404 before the engine hears of it. While the engine is away a request waits, bounded. Several
processes may share the port by sharing the socket.

    python -m platform_server.listener --fd N --tls-file FILE --engine-socket PATH …

Of the Platform it imports `edge` alone, so that a fault elsewhere cannot be reached from here.
"""
