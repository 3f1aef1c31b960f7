"""One connection, many questions in both directions: numbered streams with credit, and pings.

API::

    from runtime_kit.mux import contexts, link, tls_server, tls_wire, transports

    async def answer(link_: link.Link, method: str, body: bytes) -> bytes:
        raise link.Refusal("unknown", "That is no question here.")     # or return the answer

    # Client: over a connection of runtime_kit.server_trust.
    ours = transports.over_streams(reader, writer, peer="host:8445", answer=answer)

    # Server: mutual TLS with little memory, on a bound and listening socket.
    acceptor = tls_server.accept_tls(
        sock,
        default=lambda: context,            # contexts.without_anchors(pem_file), once a key
        anchors_for=look_up,                # by SNI: the certificates that client may show
        opened=opened,
        answer=answer,
    )
    def look_up(server_name: str) -> Sequence[bytes]: ...                # DER; empty: no entry
    def opened(link_: link.Link, proof: tls_wire.Proof) -> None: ...     # leaf_der, address
    acceptor.links; acceptor.stop(); await acceptor.finish(timeout_s=5.0)

    # Tests and simulations, without sockets.
    pair = transports.in_memory_pair(answer_left=answer, answer_right=answer)
    left, right = pair; pair.cut(); pair.blackhole()

    await ours.ask("hello", b"…", timeout_s=5.0, max_bytes=65_536) -> bytes
        # raises Refused(code, detail), Silent, Closed(reason), AnswerTooLong;
        # ClientRefused, a Closed: the server does not accept this client's certificate
    await ours.ping(timeout_s=5.0)          # raises Silent, Closed
    ours.heard_at()                         # clock.monotonic() of the last byte received
    ours.close(reason="engine-replaced", retry_after_s=3.2)     # idempotent; never waits
    await ours.wait_closed()                # Ended(reason, retry_after_s, by_peer, client_refused)
    ours.ended                              # the same, or None while the link is open
    ours.on_end = callback                  # (link, ended), once; spares a task that waits
    ours.answer = another                   # may be exchanged at any time,
    ours.answer_now = quick                 # asked first: bytes, or None to leave it to `answer`
    ours.limits = wider                     # likewise: connection.Limits
    ours.owner = anything                   # the user's own; the link never looks at it

For: two programs that hold one authenticated connection for days. No task belongs to an idle link.
Not for: who the other side is (TLS and its user), what the questions mean, reconnecting.
Known limit: a question and its answer are held whole in memory, each within a limit; open-ended
streams (logs, shells) need only a further event of ``connection``, the frames carry them already.
"""
