from pathlib import Path

import pytest

from reput.errors import CorruptMetadataError
from reput.files import DISK
from reput.formats.metadata import ConsumerOffsets, Topics
from reput.log.metadata import metadata_path, read_metadata

GOLDEN = Path(__file__).parents[2] / "golden" / "config" / "5.3.3"
GOOD, OTHER = b'{"offsetTable":{"a@g":{0:1}}}', b'{"offsetTable":{"b@g":{0:1}}}'


@pytest.mark.parametrize(
    ("content", "backup", "expected"),
    [
        (None, None, None),
        (GOOD, None, {"a@g": {0: 1}}),
        (GOOD, b"garbage", {"a@g": {0: 1}}),
        (None, OTHER, {"b@g": {0: 1}}),
        (b"", OTHER, {"b@g": {0: 1}}),
        (b"", b"", None),
        (GOOD[:9], OTHER, {"b@g": {0: 1}}),
        (b"[]", OTHER, {"b@g": {0: 1}}),
    ],
)
def test_the_backup_serves_where_the_file_does_not(tmp_path, content, backup, expected):
    (tmp_path / "config").mkdir()
    for suffix, data in (("", content), (".bak", backup)):
        if data is not None:
            (tmp_path / "config" / f"consumerOffset.json{suffix}").write_bytes(data)
    found = read_metadata(str(tmp_path), ConsumerOffsets, DISK)
    assert (found and found.offset_table) == expected


@pytest.mark.parametrize("backup", [None, b"", b"[]"])
def test_damage_without_a_backup_is_told_by_file_and_place(tmp_path, backup):
    (tmp_path / "config").mkdir()
    path = Path(metadata_path(str(tmp_path), Topics))
    path.write_bytes(b'{"dataVersion":{"counter":x}}')
    if backup is not None:
        path.with_name("topics.json.bak").write_bytes(backup)
    with pytest.raises(CorruptMetadataError) as caught:
        read_metadata(str(tmp_path), Topics, DISK)
    assert (caught.value.path, caught.value.offset) == (str(path), 26)
    assert "found 'x}}'; correct it, or put back a copy of it" in str(caught.value)
