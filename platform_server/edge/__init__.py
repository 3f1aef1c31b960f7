"""What the processes at the public edge have in common: the listener and the bundle server.

Each serves one TLS port from sockets that it is handed, looks at its certificate's file at each
handshake, writes one line a note, and ends when it is told to. Not for: what a request means.

It imports no other part of the Platform, so that a fault in one cannot be reached from here.
"""
