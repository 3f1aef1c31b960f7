import pytest

from runtime_kit import dial, failures

ORIGINS = {
    "https://platform.example": ("platform.example", 443, "platform.example:443"),
    "https://platform.example.:8444/": ("platform.example", 8444, "platform.example:8444"),
    "https://192.0.2.1:8444": ("192.0.2.1", 8444, "192.0.2.1:8444"),
    "https://[2001:db8::1]:8444": ("2001:db8::1", 8444, "[2001:db8::1]:8444"),
    "HTTPS://Platform.Example:1": ("platform.example", 1, "platform.example:1"),
}


@pytest.mark.parametrize("url", ORIGINS)
def test_an_https_origin_is_a_host_and_a_port(url: str) -> None:
    origin = dial.parse_https_origin(url)
    assert (origin.host, origin.port, origin.authority) == ORIGINS[url]


@pytest.mark.parametrize(
    "url",
    [
        "http://platform.example",
        "platform.example:8444",
        "https://",
        "https://:8444",
        "https://h:0",
        "https://h:99999",
        "https://h:x",
        "https://h/path",
        "https://h?q",
        "https://h#f",
        "https://[::1",
        "https://a b",
        "",
    ],
)
def test_anything_else_is_refused_with_a_reason(url: str) -> None:
    with pytest.raises(dial.InvalidUrl) as caught:
        dial.parse_https_origin(url)
    assert caught.value.kind is failures.Kind.PERMANENT


def test_a_password_in_a_url_is_refused_and_not_repeated() -> None:
    for url in ("https://user:hunter2@h", "http://user:hunter2@h"):
        with pytest.raises(dial.InvalidUrl) as caught:
            dial.parse_https_origin(url)
        assert "hunter2" not in str(caught.value)


PROXY = "http://proxy.example:3128"
CHOICES: dict[str, tuple[dict[str, str], str, str | None]] = {
    "nothing set": ({}, "h", None),
    "https_proxy": ({"https_proxy": PROXY}, "h", "proxy.example"),
    "HTTPS_PROXY": ({"HTTPS_PROXY": PROXY}, "h", "proxy.example"),
    "lower case wins": ({"https_proxy": "a:1", "HTTPS_PROXY": "b:1"}, "h", "a"),
    "all_proxy": ({"all_proxy": PROXY}, "h", "proxy.example"),
    "https_proxy wins over all_proxy": ({"all_proxy": "a:1", "HTTPS_PROXY": "b:1"}, "h", "b"),
    "http_proxy is for other people": ({"http_proxy": PROXY}, "h", None),
    "an empty variable": ({"https_proxy": ""}, "h", None),
    "an exception by name": ({"https_proxy": PROXY, "no_proxy": "x,h"}, "h", None),
    "an exception in capitals": ({"https_proxy": PROXY, "NO_PROXY": "H"}, "h", None),
    "an exception by domain": ({"https_proxy": PROXY, "no_proxy": "a.b"}, "x.a.b", None),
    "with a leading dot": ({"https_proxy": PROXY, "no_proxy": ".a.b"}, "x.a.b", None),
    "with a star": ({"https_proxy": PROXY, "no_proxy": "*.a.b"}, "x.a.b", None),
    "no exception by a mere ending": (
        {"https_proxy": PROXY, "no_proxy": "a.b"},
        "xa.b",
        "proxy.example",
    ),
    "everything excepted": ({"https_proxy": PROXY, "no_proxy": "*"}, "h", None),
    "an address": ({"https_proxy": PROXY, "no_proxy": "192.0.2.1"}, "192.0.2.1", None),
    "a network": ({"https_proxy": PROXY, "no_proxy": "192.0.2.0/24"}, "192.0.2.7", None),
    "an IPv6 address": ({"https_proxy": PROXY, "no_proxy": "[2001:db8::1]"}, "2001:db8::1", None),
    "an IPv6 network": ({"https_proxy": PROXY, "no_proxy": "2001:db8::/32"}, "2001:db8::1", None),
    "an exception for this port": ({"https_proxy": PROXY, "no_proxy": "h:8444"}, "h", None),
    "an exception for another port": (
        {"https_proxy": PROXY, "no_proxy": "h:1"},
        "h",
        "proxy.example",
    ),
    "loopback is no exception by itself": ({"https_proxy": PROXY}, "127.0.0.1", "proxy.example"),
}


@pytest.mark.parametrize(("environment", "host", "chosen"), CHOICES.values(), ids=CHOICES.keys())
def test_one_rule_says_which_proxy_is_used(
    environment: dict[str, str], host: str, chosen: str | None
) -> None:
    proxy = dial.find_proxy(host, port=8444, environment=environment)
    assert (proxy.host if proxy else None) == chosen


def test_a_proxys_password_shows_nowhere() -> None:
    environment = {"https_proxy": "http://user:hunter%32@proxy:3128"}
    proxy = dial.find_proxy("h", port=1, environment=environment)
    assert proxy is not None
    assert proxy.authorization == "Basic dXNlcjpodW50ZXIy"
    assert "dXNlcjpodW50ZXIy" not in repr(proxy)


@pytest.mark.parametrize("value", ["socks5://p:1", "https://p:1", "http://", "http://p:x"])
def test_a_proxy_that_cannot_be_used_is_refused_by_the_variables_name(value: str) -> None:
    with pytest.raises(dial.ProxyMisconfigured, match="all_proxy") as caught:
        dial.find_proxy("h", port=1, environment={"all_proxy": value})
    assert caught.value.kind is failures.Kind.NEEDS_OPERATOR
