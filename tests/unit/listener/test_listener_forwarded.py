import hypothesis
import pytest
from hypothesis import strategies as st

from platform_server.listener import forwarded

PROXIES = forwarded.parse_networks(["10.0.0.0/8", "2001:db8:1::/48"])

CALLERS: dict[str, tuple[str, str | None, str]] = {
    "no header": ("10.0.0.1", None, "10.0.0.1"),
    "a stranger's header": ("192.0.2.1", "for=198.51.100.9", "192.0.2.1"),
    "one hop": ("10.0.0.1", "for=198.51.100.9", "198.51.100.9"),
    "with a port": ("10.0.0.1", 'for="198.51.100.9:4711"', "198.51.100.9"),
    "IPv6": ("10.0.0.1", 'for="[2001:DB8::9]"', "2001:db8::9"),
    "IPv6 with a port": ("10.0.0.1", 'For="[2001:db8::9]:4711"', "2001:db8::9"),
    "IPv4 in IPv6": ("10.0.0.1", 'for="[::ffff:198.51.100.9]"', "198.51.100.9"),
    "more parameters": ("10.0.0.1", "by=10.0.0.1;for=198.51.100.9;proto=https", "198.51.100.9"),
    "what the client wrote before": (
        "10.0.0.1",
        "for=203.0.113.1, for=198.51.100.9",
        "198.51.100.9",
    ),
    "a chain of trusted proxies": (
        "10.0.0.1",
        "for=203.0.113.1, for=198.51.100.9, for=10.0.0.2",
        "198.51.100.9",
    ),
    "trusted all the way": ("10.0.0.1", "for=10.0.0.3, for=10.0.0.2", "10.0.0.3"),
}


@pytest.mark.parametrize(("peer", "header", "caller"), CALLERS.values(), ids=CALLERS.keys())
def test_the_caller_is_the_last_address_that_no_trusted_proxy_owns(
    peer: str, header: str | None, caller: str
) -> None:
    assert forwarded.caller_of(peer, header=header, proxies=PROXIES) == caller


@pytest.mark.parametrize(
    "header",
    [
        "",
        "for",
        "for=",
        "for=unknown",
        "for=_hidden",
        "for=somewhere.example",
        'for="198.51.100.9',
        "for=198.51.100.9:4711",
        "for=2001:db8::9",
        "for=198.51.100.999",
        "proto=https",
        "for=198.51.100.9;for=198.51.100.8",
        "for=198.51.100.9,",
        "for=198.51.100.9, proto=https",
        "for=198.51.100.9 for=1",
        "for=198.51.100.9, " * 200 + "for=1.1.1.1",
    ],
)
def test_a_trusted_proxys_header_that_names_no_address_is_refused(header: str) -> None:
    with pytest.raises(forwarded.Malformed):
        forwarded.caller_of("10.0.0.1", header=header, proxies=PROXIES)
    assert forwarded.caller_of("192.0.2.1", header=header, proxies=PROXIES) == "192.0.2.1"


@hypothesis.given(
    st.lists(
        st.sampled_from(["for=", "by=", '"', "[", "]", ":", ",", ";", " ", "\\", "192.0.2.7", "é"]),
        max_size=12,
    ).map("".join)
)
def test_whatever_a_trusted_proxy_writes_is_read_or_refused(header: str) -> None:
    try:
        caller = forwarded.caller_of("10.0.0.1", header=header, proxies=PROXIES)
    except forwarded.Malformed:
        return
    assert forwarded.parse_networks([caller])


def test_without_trusted_proxies_nobody_is_one() -> None:
    assert not forwarded.is_trusted("10.0.0.1", proxies=())
    assert not forwarded.is_trusted("", proxies=PROXIES)
