"""An address may do little without a key, and more when it has waited."""

from __future__ import annotations

import pytest

from windlass.server.limits import Addresses
from windlass.server.problems import Problem


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_an_address_has_its_burst_and_then_one_more_after_each_pause() -> None:
    clock = Clock()
    tries = Addresses("tries", 3, 6.0, clock)
    for _ in range(3):
        tries.spend("192.0.2.1")
    with pytest.raises(Problem, match="too many tries") as refused:
        tries.spend("192.0.2.1")
    assert refused.value.headers == {b"retry-after": b"6", b"connection": b"close"}
    tries.spend("192.0.2.2")
    clock.now += 6
    tries.spend("192.0.2.1")
    with pytest.raises(Problem):
        tries.spend("192.0.2.1")


def test_what_does_not_count_after_all_is_given_back() -> None:
    tries = Addresses("tries", 2, 6.0, Clock())
    for _ in range(10):
        tries.spend("192.0.2.1")
        tries.spend("192.0.2.1", -1)


def test_all_addresses_of_a_network_of_ipv6_are_one() -> None:
    tries = Addresses("tries", 2, 6.0, Clock())
    tries.spend("2001:db8::1")
    tries.spend("2001:db8::ffff:2")
    with pytest.raises(Problem):
        tries.spend("2001:db8::3")
    tries.spend("2001:db8:0:1::1")
    tries.spend("not an address")
