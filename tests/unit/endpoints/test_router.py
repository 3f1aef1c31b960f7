"""Finding a route: by exact match on what was sent, and nothing else."""

import pytest

from platform_server.endpoints import access_table, calls, router, routes
from wire_protocol import admin


async def _nothing(call: "calls.Call[None, routes.NoQuery]") -> admin.Health:
    raise NotImplementedError


def _route(method: str, path: str) -> routes.Route:
    parameters = {"node_id": "The node."} if "{node_id}" in path else {}
    return routes.Route(
        method=method,
        path=path,
        summary="s",
        handler=_nothing,
        answer=admin.Health,
        parameters=parameters,
    )


def _router() -> router.Router:
    return router.Router(
        [
            _route("GET", "/api/v1/nodes"),
            _route("POST", "/api/v1/nodes"),
            _route("GET", "/api/v1/nodes/{node_id}"),
            _route("POST", "/api/v1/nodes/{node_id}/allow"),
        ]
    )


@pytest.mark.parametrize(
    ("path", "parameter"),
    {
        "a plain id": ("/api/v1/nodes/web-1", "web-1"),
        "an encoded letter": ("/api/v1/nodes/%77eb-1", "web-1"),
        "an encoded slash stays inside its segment": ("/api/v1/nodes/a%2Fallow", "a/allow"),
        "encoding is undone once": ("/api/v1/nodes/%2577", "%77"),
    }.values(),
)
def test_a_placeholder_takes_one_segment(path: str, parameter: str) -> None:
    match = _router().find("GET", path)
    assert match.path == {"node_id": parameter}
    assert match.route.path == "/api/v1/nodes/{node_id}"


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "",
        "api/v1/nodes",
        "/api/v1/nodes/",
        "//api/v1/nodes",
        "/api/v1//nodes",
        "/api/v1/./nodes",
        "/api/v1/x/../nodes",
        "/API/V1/nodes",
        "/api/v1/%6eodes",
        "/api/v1/nodes/a/b",
        "/api/v1/nodes/a%00",
        "/api/v1/nodes/a%0a",
        "/api/v1/nodes/%ff",
        "/api/v1/nodes/" + "a" * 200,
        "/api/v1/nodes/{node_id}/allow/",
    ],
)
def test_everything_else_is_not_found(path: str) -> None:
    with pytest.raises(router.NotFound):
        _router().find("GET", path)


def test_another_method_says_which_are_allowed() -> None:
    with pytest.raises(router.MethodNotAllowed) as refused:
        _router().find("DELETE", "/api/v1/nodes")
    assert refused.value.allowed == ("GET", "POST")


@pytest.mark.parametrize(
    ("raw", "path", "query"),
    [
        ("/a?b=1&b=2&c=", "/a", (("b", "1"), ("b", "2"), ("c", ""))),
        ("http://enlist.example/a?x=%C3%BC+y", "/a", (("x", "ü y"),)),
        ("/a?x=1;y=2", "/a", (("x", "1;y=2"),)),
        ("/a#b", "/a#b", ()),
    ],
)
def test_a_target_is_split_and_its_query_decoded(
    raw: str, path: str, query: tuple[tuple[str, str], ...]
) -> None:
    target = router.read_target(raw)
    assert (target.path, target.query) == (path, query)


@pytest.mark.parametrize(
    "raw",
    ["/a?x=%00", "/a?%ff=1", "/a?x", "/a?" + "&".join(["x=1"] * 65), "/" + "a" * 9000],
)
def test_a_target_that_cannot_be_read_is_malformed(raw: str) -> None:
    with pytest.raises(router.Malformed):
        router.read_target(raw)


def test_a_route_that_nobody_listed_stops_the_start() -> None:
    with pytest.raises(access_table.Unlisted, match="GET /api/v1/secret"):
        access_table.permission_of(("GET", "/api/v1/secret"))
    with pytest.raises(access_table.Unlisted, match="not in the access table"):
        access_table.require_complete(
            frozenset(access_table.ACCESS.keys() | {("GET", "/api/v1/secret")})
        )


def test_a_rule_for_a_route_that_has_gone_stops_the_start_too() -> None:
    with pytest.raises(access_table.Unlisted, match="not served"):
        access_table.require_complete(frozenset(access_table.ACCESS.keys() - {("GET", "/healthz")}))


def test_the_same_route_twice_stops_the_start() -> None:
    with pytest.raises(ValueError, match="twice"):
        router.Router([_route("GET", "/a"), _route("GET", "/a")])


def test_a_placeholder_without_a_sentence_stops_the_start() -> None:
    with pytest.raises(ValueError, match="placeholder"):
        routes.Route(
            method="GET", path="/a/{b}", summary="s", handler=_nothing, answer=admin.Health
        )
