"""A small, strict HTTP/1.1: server, client, and a pool of kept-alive connections to one socket.

API::

    from runtime_kit.http1 import client, limits, messages, pool, server

    async def answer(request: messages.Request) -> messages.Response: ...

    serving = server.Server(answer, limits=limits.Limits(), tls=lambda: context)
    serving.start(listening_socket)        # bound and listening; TCP or Unix
    await serving.drain(timeout_s=5.0)     # finishes what is in work, then closes

    got = await client.exchange(reader, writer, method="POST", target="/x", host="h:1", body=b"{}")
    got.status, got.headers, got.body

For: the few fixed requests of the product, on ports that strangers can reach. Every wait has a
limit and every read a size. The server takes a strict subset of RFC 9112 and refuses the rest:
no transfer codings, one plain Content-Length, CRLF alone, no folded lines, HTTP/1.1 only, one
Host. Nothing is guessed, so nobody in front can have guessed otherwise. Targets are handed on
raw, never normalised.
An answer too large to hold is sent piece by piece from a ``sending.Source``.
Not for: a general web server, uploads, endless streams; redirects are answers like any other.
Known limit: pipelined requests are answered one after the other; upgrades are not spoken.
"""
