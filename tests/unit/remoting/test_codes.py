"""Names of versions."""

from __future__ import annotations

import pytest

from reput.remoting.codes import VERSION, version_name


@pytest.mark.parametrize(
    ("version", "name"),
    [(479, "V5_3_3"), (407, "V4_9_7"), (212, "V4_0_0_SNAPSHOT"), (213, "V4_0_0"), (211, "211"), (-1, "-1"),
     (611, "V5_9_9"), (612, "HIGHER_VERSION"), (10**9, "HIGHER_VERSION")],
)  # fmt: skip
def test_a_version_has_rocketmqs_name(version: int, name: str) -> None:
    assert version_name(version) == name


def test_ours_is_that_of_5_3_3() -> None:
    assert version_name(VERSION) == "V5_3_3"
