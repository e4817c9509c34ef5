import pytest
from hypothesis import given
from hypothesis import strategies as st

from reput.service.rebalance_lock_manager import RebalanceLockManager


@pytest.fixture
def manager():
    return RebalanceLockManager()


def test_a_queue_is_held_by_one_client_of_a_group(manager):
    assert manager.try_lock_batch("g", ["q0", "q1"], "a", 0) == ["q0", "q1"]
    assert manager.try_lock_batch("g", ["q2", "q1"], "b", 0) == ["q2"]
    assert manager.try_lock_batch("h", ["q0"], "b", 0) == ["q0"]


def test_a_lock_expires_a_minute_after_its_last_renewal(manager):
    manager.try_lock_batch("g", ["q"], "a", 0)
    assert manager.try_lock_batch("g", ["q"], "a", 20_000) == ["q"]
    assert manager.try_lock_batch("g", ["q"], "b", 80_000) == []
    assert not manager.is_lock_all_expired("g", 80_000)
    assert manager.is_lock_all_expired("g", 80_001)
    assert manager.try_lock_batch("g", ["q"], "b", 80_001) == ["q"]
    assert manager.try_lock_batch("g", ["q"], "a", 80_001) == []


def test_a_client_takes_its_own_expired_lock_again(manager):
    manager.try_lock_batch("g", ["q"], "a", 0)
    assert manager.try_lock_batch("g", ["q"], "a", 100_000) == ["q"]


def test_only_the_holder_unlocks(manager):
    manager.try_lock_batch("g", ["q0", "q1"], "a", 0)
    manager.unlock_batch("g", ["q0", "unknown"], "b")
    assert manager.try_lock_batch("g", ["q0"], "b", 0) == []
    manager.unlock_batch("g", ["q0"], "a")
    assert manager.try_lock_batch("g", ["q0", "q1"], "b", 0) == ["q0"]
    manager.unlock_batch("unknown", ["q0"], "a")
    assert manager.is_lock_all_expired("unknown", 0)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["lock", "unlock"]),
        st.sampled_from("gh"),
        st.lists(st.integers(0, 2), max_size=3, unique=True),
        st.sampled_from("abc"),
        st.integers(0, 70_000),
    ),
    max_size=20,
)


@given(STEPS)
def test_any_life_of_locks_is_that_of_a_plain_model(steps):
    """The model: who has locked or renewed each queue when, one entry for each attempt that succeeded."""
    manager, history, now_ms = RebalanceLockManager(), [], 0
    for verb, group, queues, client, passed_ms in steps:
        now_ms += passed_ms
        expected = []
        for queue in queues:
            last = next((one for one in reversed(history) if one[:2] == (group, queue)), None)
            if verb == "unlock":
                if last is not None and last[2] == client:
                    history.append((group, queue, None, now_ms))
            elif last is None or last[2] in (None, client) or now_ms - last[3] > 60_000:
                history.append((group, queue, client, now_ms))
                expected.append(queue)
        if verb == "lock":
            assert manager.try_lock_batch(group, queues, client, now_ms) == expected
        else:
            manager.unlock_batch(group, queues, client)
        for one in "gh":
            lasts = {entry[1]: entry for entry in history if entry[0] == one}.values()
            held = [entry for entry in lasts if entry[2] is not None and now_ms - entry[3] <= 60_000]
            assert manager.is_lock_all_expired(one, now_ms) is (not held)


def test_what_nobody_renews_is_forgotten(manager):
    manager.try_lock_batch("g", ["q0", "q1"], "a", 0)
    manager.try_lock_batch("h", ["q0"], "a", 0)
    manager.try_lock_batch("none", [], "a", 0)
    manager.try_lock_batch("g", ["q1"], "a", 60_000)
    manager.clean(60_000)
    assert len(manager) == 3
    manager.clean(60_001)
    assert (len(manager), list(manager._locks)) == (1, ["g"])
    assert manager.try_lock_batch("g", ["q0", "q1"], "b", 60_001) == ["q0"]
    manager.unlock_batch("g", ["q0", "q1"], "b")
    manager.unlock_batch("g", ["q1"], "a")
    assert (len(manager), manager._locks) == (0, {})


def test_locks_are_bounded_and_those_that_are_held_can_be_renewed(manager, monkeypatch):
    monkeypatch.setattr("reput.service.rebalance_lock_manager._MOST_LOCKS", 2)
    assert manager.try_lock_batch("g", ["q0", "q1", "q2"], "a", 0) == ["q0", "q1"]
    assert manager.try_lock_batch("h", ["q0"], "b", 0) == []
    assert manager.try_lock_batch("g", ["q0", "q1"], "a", 1) == ["q0", "q1"]
    assert list(manager._locks) == ["g"]
