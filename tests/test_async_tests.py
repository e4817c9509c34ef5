"""Tests that are coroutine functions run, and fail where they should: in a run of pytest of its own."""

from __future__ import annotations

import pytest

from tests.support import async_tests

pytest_plugins = ["pytester"]

TESTS = """
import asyncio

import pytest
from hypothesis import given, strategies


@pytest.fixture
def seven():
    return 7


async def test_holds(seven):
    await asyncio.sleep(0)
    assert seven == 7


async def test_with_a_task_that_is_cancelled_at_its_end():
    asyncio.ensure_future(asyncio.sleep(60)).cancel()


def test_without_a_loop():
    with pytest.raises(RuntimeError):
        asyncio.get_running_loop()


class TestOfAClass:
    @pytest.mark.parametrize("number", [7, 8])
    async def test_is_seven(self, number, seven):
        await asyncio.sleep(0)
        assert number == seven


async def test_fails():
    await asyncio.sleep(0)
    assert 1 == 2


async def test_leaves_a_task():
    asyncio.ensure_future(asyncio.sleep(60))


async def test_hangs():
    await asyncio.Event().wait()


@given(strategies.just(7))
async def test_of_hypothesis(number):
    pass
"""
PASSED = ["test_holds", "test_with_a_task_that_is_cancelled_at_its_end", "test_without_a_loop", "test_is_seven?7?"]
FAILED = {
    "test_is_seven?8?": "assert 8 == 7",
    "test_fails": "assert 1 == 2",
    "test_leaves_a_task": "AssertionError: tasks are left: *sleep*",
    "test_hangs": "TimeoutError",
    "test_of_hypothesis": "InvalidArgument: *async test functions*",
}


def test_coroutine_functions_run_as_tests_do(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(async_tests, "_MOST_S", 0.5)
    pytester.makepyfile(TESTS)
    done = pytester.runpytest_inprocess("-v", "-p", async_tests.__name__, "-p", "no:cacheprovider")
    done.assert_outcomes(passed=len(PASSED), failed=len(FAILED))
    done.stdout.fnmatch_lines_random([f"*::{name} PASSED*" for name in PASSED])
    done.stdout.fnmatch_lines_random([f"*::{name} FAILED*" for name in FAILED])
    done.stdout.fnmatch_lines([f"E *{why}*" for why in FAILED.values()])
