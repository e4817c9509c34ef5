"""Number of examples that a test of a property takes: a part in `make test`, all with the slow tests."""

from __future__ import annotations

from hypothesis import settings

#: The profile of `make test`, and of a test that is run alone.
QUICK = "quick"
#: The profile in which `make test-rest` runs tests of properties again: `--hypothesis-profile whole`.
WHOLE = "whole"


def register_profiles() -> None:
    """Make both known, and the quick one that of this process.

    A slow machine is no finding. The examples are the same in every run, so that a red run can be repeated.
    """
    settings.register_profile(WHOLE, max_examples=100, deadline=None, derandomize=True)
    settings.register_profile(QUICK, parent=settings.get_profile(WHOLE), max_examples=30)
    settings.load_profile(QUICK)


def examples(count: int) -> int:
    """Examples of a test that takes `count` in the whole profile, where a test without a wish takes 100."""
    return max(2, count * settings().max_examples // 100)
