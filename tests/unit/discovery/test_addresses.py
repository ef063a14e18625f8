"""Addresses as people write them."""

from __future__ import annotations

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpumon.discovery.addresses import name_targets, parse_address, parse_addresses, parse_profiler_address
from tpumon.errors import UsageError
from tpumon.model import Address


@pytest.mark.parametrize(
    ("given_text", "dialled"),
    [
        ("10.0.0.2:9999", "10.0.0.2:9999"),
        ("10.0.0.2", "10.0.0.2:8466"),
        (" tpu-w-0:9012 ", "tpu-w-0:9012"),
        ("grpc://10.0.0.2:8470", "10.0.0.2:8466"),
        ("10.0.0.2:8470", "10.0.0.2:8466"),
        ("[::1]:9999", "[::1]:9999"),
        ("grpc://[fd00::2]", "[fd00::2]:8466"),
        ("host.with.dots.:1", "host.with.dots.:1"),
        ("a:65535", "a:65535"),
    ],
)
def test_good_addresses_become_what_is_dialled(given_text, dialled):
    """What people write for an address becomes host:port; a TPU node's master port becomes its profiler's."""
    assert parse_profiler_address(given_text) == dialled
    assert parse_address("10.0.0.2:8470") == "10.0.0.2:8470", "an exporter or a runtime metric service may have it"


@pytest.mark.parametrize(
    "text",
    [
        "", ":9999", "host:", "host:0", "host:65536", "host:99999", "host:-1", "host:http", "host:٣", "host:1:2",
        "::1", "fd00::2", "[::1", "[::1]9999", "[host]:1", "[]:1", "http://host:1", "host:1/path", "/run/x.sock",
        "a b:1", "-host:1", "ho\x1bst:1", "host:1e3",
    ],
)  # fmt: skip
def test_bad_addresses_are_usage_errors_that_show_the_good_form(text):
    """A bad address is refused before a channel is made, with the address and an example of a good one."""
    with pytest.raises(UsageError, match=r"10\.0\.0\.2:8466") as caught:
        parse_address(text)
    assert repr(text.strip()) in str(caught.value)
    assert caught.value.exit_status == 2


@given(st.text())
def test_any_text_is_an_address_or_a_usage_error(text):
    """No text makes the parser fail in another way, and what it lets through is stable and has a port in range."""
    try:
        address = parse_address(text)
    except UsageError:
        return
    assert parse_address(address) == address
    assert 1 <= int(address.rpartition(":")[2]) <= 65535


def test_lists_may_repeat_and_hold_commas():
    """Options that repeat and options with commas give one list, in order, each address once."""
    assert parse_addresses(["a:1,b:2,", "c", "a:1"], default_port=9) == ("a:1", "b:2", "c:9")
    assert parse_addresses([]) == ()
    with pytest.raises(UsageError):
        parse_addresses([","])


def test_workers_are_named_after_their_hosts():
    """A name is the host's; with its port where a host has several; an address without a name stays an address."""
    names = [
        target.worker for target in name_targets(["tpu-w-0:1", "tpu-w-1:1", "tpu-w-1:2", "10.0.0.2:1", "[fd00::2]:1"])
    ]
    assert names == ["tpu-w-0", "tpu-w-1:1", "tpu-w-1:2", "10.0.0.2:1", "[fd00::2]:1"]


def test_loopback_goes_by_this_machines_name():
    """Nothing is called localhost: in a fleet's dashboards every worker would be."""
    here = socket.gethostname()
    assert [target.worker for target in name_targets(["localhost:1"])] == [here]
    assert [target.worker for target in name_targets(["127.0.0.1:1", "[::1]:2"])] == [here, f"{here}:2"]


def test_two_spellings_of_one_place_are_one_worker():
    """Asked twice it would be busy with itself; the first spelling is dialled, the order stays."""
    targets = name_targets(["localhost:1", "tpu:1", "127.0.0.2:1", "127.0.0.1:1", "[::1]:1", "TPU.:1"])
    assert [target.address for target in targets] == ["localhost:1", "tpu:1", "127.0.0.2:1"]


def test_names_are_unique():
    """Where hosts' names are not enough, addresses are the names."""
    targets = name_targets(["127.0.0.1:1", "127.0.0.2:1", "127.0.0.2:2"])
    assert [target.worker for target in targets][:2] == ["127.0.0.1:1", "127.0.0.2:1"]
    assert len({target.worker for target in targets}) == 3


@pytest.mark.parametrize(
    ("text", "host", "port", "here"),
    [
        ("10.0.0.2:9999", "10.0.0.2", 9999, False),
        ("[fd00::2]:8466", "fd00::2", 8466, False),
        ("[::1]:1", "::1", 1, True),
        ("127.0.0.5:1", "127.0.0.5", 1, True),
        ("localhost:1", "localhost", 1, True),
        ("tpu-w-0:9012", "tpu-w-0", 9012, False),
    ],
)
def test_an_address_is_a_value(text, host, port, here):
    """Host and port apart; the same text again, IPv6 in brackets."""
    address = Address.parse(text)
    assert (address.host, address.port, address.is_this_host, str(address)) == (host, port, here, text)
    assert str(address.at(7)) == text.rpartition(":")[0] + ":7"


def test_spellings_of_one_place():
    """Upper case, a final dot, and this host's three names."""
    assert len({Address.parse(text).place for text in ("HOST.a.:1", "host.a:1")}) == 1
    assert len({Address.parse(text).place for text in ("localhost:1", "127.0.0.1:1", "[::1]:1")}) == 1


def test_a_range_of_ports_is_an_address_for_each():
    """No port of a range becomes another one; each address counts once."""
    assert parse_addresses(["h:20000-20002,h:20001"]) == ("h:20000", "h:20001", "h:20002")
    assert parse_addresses(["grpc://[fd00::2]:1-2"]) == ("[fd00::2]:1", "[fd00::2]:2")
    assert parse_addresses(["h:8469-8471"]) == ("h:8469", "h:8470", "h:8471")
    assert len(parse_addresses(["h:1-1024"])) == 1024


def test_port_8470_beside_8466_of_the_same_host_is_another_server(said):
    assert parse_addresses(["h:8466,h:8470", "grpc://g:8470"]) == ("h:8466", "h:8470", "g:8466")
    assert said == ["grpc://g:8470: port 8470 is a TPU node's own; its profiler is asked at g:8466"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("h:3-2", "backwards"),
        ("h:1-1025", "more than 1024 ports"),
        ("h:0-5", "not between 1 and 65535"),
        ("h:65530-65536", "not between 1 and 65535"),
        ("-h:1-2", "not a name or an address"),
        ("h:1-", "not between 1 and 65535"),
    ],
)
def test_a_wrong_range_is_explained(text, why):
    """In the words of the user's own text."""
    with pytest.raises(UsageError, match=why):
        parse_addresses([text])
