"""The doors of the Platform: routes, who may call them, and HTTP around them.

Handlers know nothing of HTTP: they take a `calls.Call` and give back a model. Only the
`http_` modules touch aiohttp.
"""
