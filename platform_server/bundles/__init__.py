"""The bundle server: what a machine installs from, in a process of its own.

It serves the folder `bundles/` of the data directory, read-only, and nothing else: the installer
(`/install.sh`), one line that says which archive is the latest (`/worker-<arch>`), and archives by
their hash (`/bundles/sha256/<64 hex>`), each with the installer that came with it
(`…/install.sh`), whose hash a ticket names. It holds the TLS key of the enrollment port, whose pin
machines are told, and no store. All that it serves is public; what makes an archive worth
installing is its hash and its signature, never this port.

    python -m platform_server.bundles --fd N --tls-file FILE --folder DIR …

Of the Platform it imports `edge` alone. Who puts the archives there is `shelf`.
"""
