"""Tables of topics whose bodies have many fields."""

from __future__ import annotations

import pyarrow as pa
import pytest

from reput.jobs.query.topic_table import TopicColumns, topic_columns


def test_a_schema_of_many_columns_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    fields = pa.schema([pa.field(f"a{number}", pa.int64()) for number in range(100)])
    columns, schema_of_all = topic_columns(fields, lambda: ()), TopicColumns.schema.fget
    made = []
    monkeypatch.setattr(TopicColumns, "schema", property(lambda self: made.append(1) or schema_of_all(self)))
    assert columns.schema_of(fields.names) == fields
    assert len(made) == 1
