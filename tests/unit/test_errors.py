from __future__ import annotations

import pickle

import pytest

from reput import errors
from reput.filter.expression_error import ExpressionError

CLASSES = [getattr(errors, name) for name in errors.__all__]


@pytest.mark.parametrize("error", CLASSES)
def test_every_error_says_when_it_is_raised(error: type[errors.ReputError]) -> None:
    assert issubclass(error, errors.ReputError)
    assert error.__doc__ is not None
    assert error.__doc__.startswith("Raised when ")


def test_only_a_full_disk_a_busy_one_and_silence_pass_by_themselves() -> None:
    assert [error for error in CLASSES if error.retriable] == [
        errors.RemotingTimeoutError,
        errors.StoreBusyError,
        errors.StoreFullError,
    ]


def test_a_mistake_of_the_caller_is_a_value_error() -> None:
    mistakes = {error for error in CLASSES if issubclass(error, ValueError)}
    assert mistakes == {errors.ConfigError, errors.MessageIllegalError, errors.SubscriptionError}


@pytest.mark.parametrize("error", [error for error in CLASSES if issubclass(error, errors.CorruptStoreError)])
def test_damage_is_told_with_file_offset_and_reason(error: type[errors.CorruptStoreError]) -> None:
    raised = error("/store/commitlog/00000000000000000000", 4711, "body CRC is 1, expected 2")
    assert str(raised) == "/store/commitlog/00000000000000000000: damaged at offset 4711: body CRC is 1, expected 2"
    assert (raised.path, raised.offset, raised.reason) == (
        "/store/commitlog/00000000000000000000", 4711, "body CRC is 1, expected 2",
    )  # fmt: skip


MADE = {
    errors.CorruptStoreError: ("log", 7, "magic code"),
    errors.MQBrokerError: ("127.0.0.1:10911", 1, "no"),
    errors.MissingFieldError: (1, "no topic", "topic"),
    errors.RemotingCommandError: (1, "no"),
    errors.WouldWaitError: ("no room", 4096),
}


@pytest.mark.parametrize("kind", [*CLASSES, ExpressionError])
def test_an_error_survives_the_way_from_a_worker_process(kind: type[errors.ReputError]) -> None:
    arguments = next((MADE[one] for one in kind.__mro__ if one in MADE), ("text",))
    raised = kind(*arguments)
    raised.stored_messages = 3
    found = pickle.loads(pickle.dumps(raised))
    assert type(found) is kind
    assert (str(found), found.args, vars(found)) == (str(raised), raised.args, vars(raised))


def test_all_errors_are_public() -> None:
    defined = [
        name for name, one in vars(errors).items() if isinstance(one, type) and one.__module__ == errors.__name__
    ]
    assert sorted(defined) == sorted(errors.__all__)
