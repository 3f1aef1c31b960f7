"""The routes of the DigitalOcean of our own, and what its refusals say."""

import re
from typing import Final

_NOT_FOUND: Final = "The resource you were accessing could not be found."
REFUSALS: Final = {  # our words for what DigitalOcean says in sentences: status, id, message
    "droplet_limit": (
        422,
        "unprocessable_entity",
        "creating this/these droplet(s) will exceed your droplet limit",
    ),
    "no_capacity": (
        422,
        "unprocessable_entity",
        "Droplet creation is temporarily restricted in this region: out of capacity",
    ),
    "bad_size": (422, "unprocessable_entity", "Size is not available in this region."),
    "pending_event": (422, "unprocessable_entity", "Droplet already has a pending event."),
    "forbidden": (403, "forbidden", "You are not authorized to perform this operation"),
    "not_found": (404, "not_found", _NOT_FOUND),
    "conflict": (409, "conflict", "attached volume cannot be deleted"),
}
ROUTES: Final = tuple(
    (method, re.compile(f"^{pattern}/?$"), f"{method} {name}")
    for method, pattern, name in (
        ("GET", r"/v2/account", "/v2/account"),
        ("GET", r"/v2/sizes", "/v2/sizes"),
        ("GET", r"/v2/images", "/v2/images"),
        ("GET", r"/v2/images/([^/]+)", "/v2/images/{id}"),
        ("GET", r"/v2/droplets", "/v2/droplets"),
        ("POST", r"/v2/droplets", "/v2/droplets"),
        ("DELETE", r"/v2/droplets", "/v2/droplets"),
        ("GET", r"/v2/droplets/(\d+)", "/v2/droplets/{id}"),
        ("DELETE", r"/v2/droplets/(\d+)", "/v2/droplets/{id}"),
        ("POST", r"/v2/droplets/(\d+)/actions", "/v2/droplets/{id}/actions"),
        (
            "GET",
            r"/v2/droplets/(\d+)/destroy_with_associated_resources",
            "/v2/droplets/{id}/destroy_with_associated_resources",
        ),
        ("GET", r"/v2/actions/(\d+)", "/v2/actions/{id}"),
        ("GET", r"/v2/volumes", "/v2/volumes"),
        ("POST", r"/v2/volumes", "/v2/volumes"),
        ("GET", r"/v2/volumes/([^/]+)", "/v2/volumes/{id}"),
        ("DELETE", r"/v2/volumes/([^/]+)", "/v2/volumes/{id}"),
        ("POST", r"/v2/volumes/([^/]+)/actions", "/v2/volumes/{id}/actions"),
        ("POST", r"/v2/volumes/([^/]+)/snapshots", "/v2/volumes/{id}/snapshots"),
        ("GET", r"/v2/snapshots", "/v2/snapshots"),
        ("GET", r"/v2/snapshots/([^/]+)", "/v2/snapshots/{id}"),
        ("DELETE", r"/v2/snapshots/([^/]+)", "/v2/snapshots/{id}"),
        ("GET", r"/v2/reserved_ips", "/v2/reserved_ips"),
        ("POST", r"/v2/reserved_ips", "/v2/reserved_ips"),
        ("GET", r"/v2/reserved_ips/([^/]+)", "/v2/reserved_ips/{ip}"),
        ("DELETE", r"/v2/reserved_ips/([^/]+)", "/v2/reserved_ips/{ip}"),
        ("POST", r"/v2/reserved_ips/([^/]+)/actions", "/v2/reserved_ips/{ip}/actions"),
        ("POST", r"/v2/tags", "/v2/tags"),
        ("GET", r"/v2/firewalls", "/v2/firewalls"),
        ("POST", r"/v2/firewalls", "/v2/firewalls"),
        ("GET", r"/v2/firewalls/([^/]+)", "/v2/firewalls/{id}"),
        ("DELETE", r"/v2/firewalls/([^/]+)", "/v2/firewalls/{id}"),
        ("GET", r"/v2/account/keys", "/v2/account/keys"),
        ("POST", r"/v2/account/keys", "/v2/account/keys"),
        ("GET", r"/v2/account/keys/([^/]+)", "/v2/account/keys/{id}"),
        ("DELETE", r"/v2/account/keys/([^/]+)", "/v2/account/keys/{id}"),
    )
)
