"""Our own small OIDC issuer, for clouds that take assertions in place of stored secrets.

Keys that rotate with overlap, two public documents that anybody may host, and assertions of a few
minutes, one subject a connection. It is no login service: there is no endpoint, no user, no
redirect.
"""
