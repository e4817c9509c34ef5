"""Queues of message groups: Guava's own vectors."""

from __future__ import annotations

import pytest

from reput.formats.java import string_hash
from reput.service.grpc.queue_selector import consistent_hash, queue_of_group

#: `HashingTest.testConsistentHash_linearCongruentialGeneratorCompatibility`, of 100 buckets.
GOLDEN_100 = (0, 55, 62, 8, 45, 59, 86, 97, 82, 59, 73, 37, 17, 56, 86, 21, 90, 37, 38, 83)


def test_numbers_have_the_buckets_of_guava() -> None:
    assert tuple(consistent_hash(number, 100) for number in range(len(GOLDEN_100))) == GOLDEN_100


@pytest.mark.parametrize(
    ("bucket", "value", "buckets"),
    [
        (6, 10863919174838991, 11), (3, 2016238256797177309, 11), (5, 1673758223894951030, 11), (80343, 2, 100001),
        (22152, 2201, 100001), (15018, 2202, 100001),
    ],
)  # fmt: skip
def test_large_numbers_too(bucket: int, value: int, buckets: int) -> None:
    assert consistent_hash(value, buckets) == bucket


def test_a_group_has_the_bucket_of_its_hash() -> None:
    for number in range(100):
        group = f"group-{number}"
        assert queue_of_group(group, 1) == 0
        assert queue_of_group(group, 7) == consistent_hash(string_hash(group), 7) < 7
