import pytest
from hypothesis import given
from hypothesis import strategies as st

from reput.formats.paths import (
    file_name_to_offset,
    index_file_name,
    index_file_name_after,
    is_checked_name,
    is_index_file_name,
    offset_to_file_name,
    queue_folder_id,
    topic_folder_name,
)


@pytest.mark.parametrize(
    ("offset", "name"),
    [
        (0, "00000000000000000000"),
        (6_000_000, "00000000000006000000"),
        (1_073_741_824, "00000000001073741824"),
        (2**63 - 1, "09223372036854775807"),
    ],
)
def test_files_are_named_after_their_first_byte(offset, name):
    assert offset_to_file_name(offset) == name
    assert file_name_to_offset(name) == offset


@given(st.integers(0, 2**63 - 1))
def test_any_offset_comes_back_from_its_name(offset):
    assert file_name_to_offset(offset_to_file_name(offset)) == offset


@pytest.mark.parametrize(
    "name",
    [
        *("", "0", "0" * 19, "0" * 21, "0" * 19 + "x", "-" + "0" * 19, "+" + "0" * 19, " " + "0" * 19),
        *("0" * 19 + "\n", "0" * 9 + "_" + "0" * 10, "٠" * 20, "²" * 20, "9" * 20, "09223372036854775808"),
    ],
)
def test_any_other_name_is_no_offset(name):
    assert file_name_to_offset(name) is None


@pytest.mark.parametrize(
    ("timestamp_ms", "utc_offset_s", "name"),
    [
        (0, 0, "19700101000000000"),
        (1_700_000_000_123, 0, "20231114221320123"),
        (1_700_000_000_123, 3600, "20231114231320123"),
        (1_700_000_000_123, 8 * 3600, "20231115061320123"),
        (1_700_000_000_007, -12_600, "20231114184320007"),
    ],
)
def test_index_files_are_named_after_the_local_time(timestamp_ms, utc_offset_s, name):
    assert index_file_name(timestamp_ms, utc_offset_s) == name


@pytest.mark.parametrize(
    ("topic", "name"),
    [
        (b"orders", "orders"),
        (b"%RETRY%group", "%RETRY%group"),
        (b"\xff", "\ufffd"),
        (b"x" * 255, "x" * 255),
        (b"x" * 256, None),
        (("ü" * 127 + "x").encode(), "ü" * 127 + "x"),
        (("ü" * 128).encode(), None),
        *((topic, None) for topic in (b"", b".", b"..", b"a/b", b"/", b"a\0b")),
        (b"...", "..."),
    ],
)
def test_a_topic_has_the_folder_of_its_name_unless_that_leads_elsewhere(topic, name):
    assert topic_folder_name(topic) == name


@given(st.text())
def test_a_checked_name_stays_in_its_folder(name):
    assert is_checked_name(name) == (name not in ("", ".", "..") and not {*"/\0"} & {*name} and is_short(name))


def is_short(name):
    try:
        return len(name.encode()) <= 255
    except UnicodeEncodeError:
        return False


@given(st.integers(0, 2**31 - 1))
def test_a_queue_has_one_folder(queue_id):
    assert queue_folder_id(str(queue_id)) == queue_id
    assert queue_folder_id(f"0{queue_id}") is None


@pytest.mark.parametrize("name", ["", "00", "-1", "+1", " 1", "1 ", "2147483648", "9" * 5000, "٠", "²", "1_0", "x"])
def test_any_other_folder_is_no_queue(name):
    assert queue_folder_id(name) is None


@given(st.integers(0, 9999 * 10**13 - 1), st.integers(0, 10**13))
def test_an_index_file_has_a_later_name_than_the_last_one_and_is_listed(last, timestamp_ms):
    last = f"{last:017d}"
    name = index_file_name_after(last, timestamp_ms, 0)
    assert name > last
    assert name >= index_file_name(timestamp_ms, 0)
    assert is_index_file_name(last)
    assert is_index_file_name(name) or last == f"{9999 * 10**13 - 1}"


@pytest.mark.parametrize("name", ["9" * 17, f"{9999 * 10**13}", "0" * 16, "0" * 18, "0" * 16 + "x", "", "²" * 17])
def test_a_name_after_which_none_would_follow_is_no_index_file(name):
    assert not is_index_file_name(name)
