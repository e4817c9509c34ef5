"""`query_sql`: SQL over the messages of a store, by DuckDB in this process (the extra `lake`).

Each topic is a table; `messages` is the table of all topics. Only columns that DuckDB needs are read, and only topics
that the statement names, batch by batch. DuckDB holds what joins, groups and orders need.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from functools import partial
from itertools import chain, count
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from reput.config.arguments import an_object_of, check_text, refusal
from reput.counts import counted
from reput.errors import ConfigError, CorruptRecordError, ReputError
from reput.extras import require
from reput.jobs.arguments import check_arguments
from reput.jobs.damages import find_damages
from reput.jobs.query.field_hints import reserved_field
from reput.jobs.query.kept_reads import KeptReads, check_kept
from reput.jobs.query.query_job import LogRows
from reput.jobs.query.topic_table import BODY_ERROR, SAMPLE_ROWS, TopicColumns, topic_columns
from reput.jobs.runner import LocalRunner
from reput.log.datasets.arrow_filters import narrowed
from reput.log.datasets.batch_scanner import BatchScanner
from reput.log.directory import StoreDirectory
from reput.log.plans.plan_parts import Part
from reput.log.plans.pruning import Wanted, wanted_by
from reput.log.reads.open_batches import batch_reader
from reput.log.selection import make_selection
from reput.log.unknown_topics import warn_of_unknown_topics
from reput.progress import Progress

if TYPE_CHECKING:
    import duckdb
    from duckdb.sqltypes import DuckDBPyType

#: Table of all topics, also beside a topic that SQL would call so.
MESSAGES = "messages"
_BATCH_ROWS = 32_768
#: DuckDB's text with the line of the statement, and a caret below it.
_CARET = re.compile(r"(.*?)\s*\nLINE (\d+): (.*)\n( *)\^+\s*", re.DOTALL)
#: The statement that asks for the names of the tables, of which DuckDB knows those alone that a statement names.
_SHOW_TABLES = re.compile(r"\s*show\s+tables\s*;?\s*", re.IGNORECASE)
_PLAIN_NAME = re.compile(r"[^\W\d]\w*")
#: A character of a word; a word, or a character of none; and a place where no word goes on.
_WORD, _TOKEN, _NO_WORD_NEXT = re.compile(r"\w"), re.compile(r"\w+|\W"), re.compile(r"(?!\w)")
#: Limit of topics that an error lists if a statement names an unknown table.
_SHOWN_TOPICS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Store, topics and time range that a query reads.

    Attributes:
        path, commit_log_path, begin, end: as for `find_messages`.
        topics: the topics that are tables; None: all that have a queue.
        schemas: of JSON bodies, by topic (`reput.jobs.body_schema`); inferred for other topics.
        kept: reads and decodes by tasks, and keeps their rows (as for `find_messages`).
        progress: as for `find_messages`.
        damaged: treatment of damage in the log: "refuse" is an error, "skip" reads all whole records before and after.
    """

    path: str | os.PathLike[str]
    topics: Sequence[str] | None = None
    begin: datetime | int | None = None
    end: datetime | int | None = None
    schemas: Mapping[str, str] | None = None
    commit_log_path: str | os.PathLike[str] | None = None
    kept: KeptReads | None = None
    progress: Progress | None = None
    damaged: Literal["refuse", "skip"] = "refuse"

    def __post_init__(self) -> None:
        check_arguments(**{one.name: getattr(self, one.name) for one in fields(self)})
        make_selection(topics=self.topics, begin=self.begin, end=self.end, store="")
        schemas: object = {} if self.schemas is None else self.schemas
        texts = (*schemas.keys(), *schemas.values()) if isinstance(schemas, Mapping) else (None,)
        if not all(isinstance(text, str) for text in texts):
            raise refusal("schemas", schemas, "a schema, as a text, by topic")
        check_kept("kept", self.kept)

    @property
    def mode(self) -> str:
        """`damaged` as the mode of Spark's readers."""
        return "DROPMALFORMED" if self.damaged == "skip" else "FAILFAST"

    def damages(self) -> list[str]:
        """Texts of the damage that readers pass over: messages may be missing there. Reads the whole log again."""
        if self.damaged == "refuse":
            return []
        return find_damages(self.path, runner=LocalRunner(), commit_log_path=self.commit_log_path).texts()

    def topics_of_store(self) -> set[str]:
        """All topics of the store that have a queue."""
        directory = StoreDirectory(self.path, commit_log_path=self.commit_log_path)
        return {queue.topic for queue in (*directory.queues(), *directory.batch_queues())}

    def table_names(self, known: Iterable[str]) -> list[str]:
        """Topics that are tables of their own, in order; `known` are the store's topics."""
        return sorted(topic for topic in (known if self.topics is None else self.topics) if topic.lower() != MESSAGES)

    def tables(self, sql: str) -> list[str]:
        """Topics of tables that a statement may name; raises ConfigError for two topics that are one name to SQL."""
        directory = StoreDirectory(self.path, commit_log_path=self.commit_log_path)
        if unknown := _without_queue(directory, set(self.schemas or ()) - set(self.topics or ())):
            raise ConfigError(f"schema: there is no topic {min(unknown)!r} in {os.fspath(self.path)}")
        if all_topics := [topic for topic in self.schemas or () if topic.lower() == MESSAGES]:
            raise ConfigError(f"schema: {all_topics[0]} is the table of all topics, which has no fields of bodies")
        named: dict[str, str] = {}
        names = self.table_names(directory.topic_folders())
        standing = sorted({*words_of(sql, names), *words_of(_with_single_quotes(sql), names)})
        empty = _without_queue(directory, standing) if self.topics is None else set()
        for topic in standing:
            if topic not in empty:
                other = named.setdefault(topic.lower(), topic)
                if other != topic:
                    raise ConfigError(
                        f"topics {other!r} and {topic!r} are one name to SQL; choose one by --topics (topics=)"
                    )
        return list(named.values())

    def quoting_hint(self, sql: str, quote: str, reason: str) -> str:
        """Hint to quote a topic in a statement that an engine has refused for a reason; empty if it is no topic's."""
        for topic in self.tables(sql):
            name = re.escape(topic)
            is_word = _PLAIN_NAME.fullmatch(topic) and not re.search(f"near [\"'`]{name}[\"'`]", reason, re.IGNORECASE)
            if not is_word and re.search(rf"(?<![\w\"'`]){name}(?![\w\"'`])", sql, re.IGNORECASE):
                return f"; the topic {topic} stands in quotes: {quote}{topic}{quote}"
        return ""

    def read(self, topic: str | None, columns: Sequence[str]) -> LogRows:
        """Rows with these columns of the log, of one topic or of all wanted topics."""
        topics = self.topics if topic is None else [topic]
        directory = StoreDirectory(self.path, commit_log_path=self.commit_log_path)
        selection = make_selection(
            columns=columns, topics=topics, begin=self.begin, end=self.end, store=directory.name, mode=self.mode
        )
        return LogRows(directory, selection, wanted=wanted_by(selection))

    def columns(self, topic: str, plan: Callable[[LogRows], Sequence[Part]] | None = None) -> TopicColumns:
        """Columns of a topic's table; `plan` plans the read of a sample of its bodies, if another one has done so."""
        return topic_columns((self.schemas or {}).get(topic), lambda: self._sample(topic, plan))

    def _sample(self, topic: str, plan: Callable[[LogRows], Sequence[Part]] | None) -> Iterable[pa.Array]:
        rows, bodies = 0, self.read(topic, ["body"])
        for batch in bodies.batches(bodies.plan() if plan is None else plan(bodies)):
            yield batch["body"].slice(0, SAMPLE_ROWS - rows)
            rows += batch.num_rows
            if rows >= SAMPLE_ROWS:
                break


def words_of(sql: str, names: Iterable[str]) -> list[str]:
    """Names that stand in a statement between other characters than letters, digits and _, in any case, in order.

    The statement is gone through once, however many names there are.
    """
    by_text: dict[str, list[str]] = {}
    for name in names:
        by_text.setdefault(name.lower(), []).append(name)
    by_text.pop("", None)
    begins = {found.group() for found in map(_TOKEN.match, by_text) if found is not None}
    longest = max(map(len, by_text), default=0)
    text = sql.lower()
    ends = [found.start() for found in _NO_WORD_NEXT.finditer(text)]
    found_names = set[str]()
    for token in _TOKEN.finditer(text):
        begin = token.start()
        if token.group() in begins and not (begin and _WORD.match(text[begin - 1])):
            for end in ends[bisect_right(ends, begin) :]:
                if end - begin > longest:
                    break
                found_names.update(by_text.get(text[begin:end], ()))
    return sorted(found_names)


def _with_single_quotes(sql: str) -> str:
    """A statement with each quote in a quoted name once, as the name has it."""
    return sql.replace('""', '"').replace("``", "`")


def _without_queue(directory: StoreDirectory, topics: Collection[str]) -> set[str]:
    """Topics that have no queue."""
    queues = (*directory.queues(topics), *directory.batch_queues(topics))
    return set(topics) - {queue.topic for queue in queues}


def _decoded(log_rows: LogRows, columns: TopicColumns, names: Sequence[str], part: Part) -> Iterator[pa.RecordBatch]:
    """Task: read one part of the log as columns of a table."""
    return (columns.rows(batch, names) for batch in log_rows.read(part))


class SqlTable(ds.Dataset):  # type: ignore[misc]
    """Table that DuckDB scans, as often as a query needs, and with the columns that it needs.

    Args:
        plans: plans of reads by what is wanted, of all tables of a statement: `messages where topic = 'orders'` reads
            the parts that the sample of `orders` has read.

    Attributes:
        undecoded: count of bodies of the last scan that could not be decoded.
        failure: error that ended a scan; DuckDB passes on only its text.
    """

    def __init__(self, source: Source, topic: str | None, plans: dict[Wanted | None, Sequence[Part]]) -> None:
        self._source = source
        self.topic = topic
        self._plans = plans
        self.columns = TopicColumns() if topic is None else source.columns(topic, self._plan)
        self.undecoded = 0
        self.failure: ReputError | None = None

    @property
    def schema(self) -> pa.Schema:
        """All columns."""
        return self.columns.schema

    def scanner(
        self, columns: Sequence[str] | None = None, filter: pc.Expression | None = None, **_: Any
    ) -> BatchScanner:
        """Scanner of some columns, with the rows that pass a filter."""
        return BatchScanner(self.schema, self._rows, columns, filter)

    def _plan(self, rows: LogRows) -> Sequence[Part]:
        """The parts of a read, planned once: by a statement's scans with the same conditions, and its samples."""
        if rows.wanted not in self._plans:
            self._plans[rows.wanted] = rows.plan()
        return self._plans[rows.wanted]

    def _read(self, names: Sequence[str], expression: pc.Expression | None) -> Iterator[pa.RecordBatch]:
        """Rows with these columns that may pass a filter."""
        source, columns = self._source, self.columns
        rows = source.read(self.topic, columns.log_columns(names))
        if expression is not None:
            assert rows.wanted is not None, "made by Source.read"
            rows = replace(rows, wanted=narrowed(rows.wanted, expression, rows.directory, columns.schema))
        if source.kept is None:
            return (columns.rows(batch, names) for batch in rows.batches(self._plan(rows), source.progress))
        of = MESSAGES if self.topic is None else f"topic {self.topic}"
        assert rows.wanted is not None, "made by Source.read"
        where = "" if expression is None else f" where {rows.wanted.text}"  # Arrow prints long lists in part
        task = partial(_decoded, rows, columns, names)
        return source.kept.read(f"read {of}: {', '.join(names)}{where}", rows.plan, task, columns.schema_of(names))

    def _rows(self, names: Sequence[str], expression: pc.Expression | None) -> Iterator[pa.RecordBatch]:
        self.undecoded = 0
        needed = list(names)
        if BODY_ERROR not in needed and not set(self.columns.names).isdisjoint(needed):
            needed.append(BODY_ERROR)
        try:
            for rows in self._read(needed, expression):
                if BODY_ERROR in needed:
                    self.undecoded += rows.num_rows - rows[BODY_ERROR].null_count
                yield rows.select(list(names))
        except ReputError as error:
            self.failure = error
            raise


class SqlRows:
    """Rows of a query, to be read once.

    Attributes:
        reader: the rows, made on demand, with the names of `distinct_names`; raises as `find_messages`.
        tables: the tables that the query may read.
    """

    def __init__(self, reader: pa.RecordBatchReader, tables: Sequence[SqlTable], source: Source) -> None:
        names = distinct_names(reader.schema.names)
        fields = [field.with_name(name) for field, name in zip(reader.schema, names, strict=True)]
        self.reader = batch_reader(pa.schema(fields), _batches(reader, names, tables))
        self.tables = tables
        self._source = source

    @property
    def findings(self) -> list[str]:
        """Texts of undecoded bodies and of damage that was passed over. Complete when all rows are read."""
        undecoded = [undecoded_finding(str(table.topic), table.undecoded) for table in self.tables if table.undecoded]
        return undecoded + self._source.damages()


def distinct_names(names: Sequence[str]) -> list[str]:
    """Names of an answer's columns: one that comes again gets a number, as in a table that DuckDB makes of the answer.

    A join of two topics has `topic`, `tags` and others twice, and a row of JSON has each name once.
    """
    taken, distinct = set[str](), list[str]()
    for name in names:
        numbered = chain([name], (f"{name}_{number}" for number in count(1)))
        distinct.append(next(one for one in numbered if one.casefold() not in taken))
        taken.add(distinct[-1].casefold())
    return distinct


def undecoded_finding(topic: str, count: int | None = None) -> str:
    """Text about bodies of a topic that could not be decoded; without a count, if it is not known."""
    bodies = "some bodies do" if count is None else counted(count, "body does", "bodies do")
    return f"topic {topic}: {bodies} not fit the schema, so fields are null; {BODY_ERROR} says why"


def _batches(
    reader: pa.RecordBatchReader, names: Sequence[str], tables: Sequence[SqlTable]
) -> Iterator[pa.RecordBatch]:
    """Rows with our own errors. No method: Arrow's reader and its owner would hold each other, and never be freed."""
    try:
        yield from (batch.rename_columns(names) for batch in reader)
    except Exception:
        _raise_failure(tables)
        raise


def query_sql(source: Source, sql: str) -> SqlRows:
    """Run one read-only statement of DuckDB's dialect.

    Tables are the topics, quoted if a name has other characters than letters, digits and _ ("my-topic"), and
    `messages`, all topics without the fields of bodies. A table has the columns of `read_log`, the fields of JSON
    bodies (see `TopicColumns`), and `body_error`. `show tables` lists all.

    Raises:
        ConfigError: the text is no single statement that reads, or DuckDB refuses it; or as `Source`.
        ConfigError: DuckDB is not installed.
        StoreFormatError, CorruptRecordError, StoreError: as `find_messages`.
    """
    an_object_of(Source)("source", source)
    check_text("sql", sql)
    require("duckdb", "SQL")
    import duckdb

    connection = duckdb.connect(":memory:", config={"enable_external_access": "false"})
    connection.execute("SET TimeZone = 'UTC'")
    try:
        statements = connection.extract_statements(sql)
    except duckdb.Error as error:
        hint = source.quoting_hint(sql, '"', str(error)) or _field_hint(connection, source, sql, str(error))
        raise ConfigError(f"sql: {_on_one_line(str(error))}{hint}") from None
    if len(statements) != 1 or statements[0].type not in (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN):
        raise ConfigError("sql: expected one statement that reads: select ... from topic")
    if _SHOW_TABLES.fullmatch(sql):
        names = sorted([MESSAGES, *source.table_names(source.topics_of_store())])
        answer = connection.sql("select unnest($names) as name", params={"names": names})
        return SqlRows(answer.to_arrow_reader(_BATCH_ROWS), [], source)
    warn_of_unknown_topics(source.topics, StoreDirectory(source.path, commit_log_path=source.commit_log_path))
    plans: dict[Wanted | None, Sequence[Part]] = {}
    tables = {topic: SqlTable(source, topic, plans) for topic in source.tables(sql)}
    tables[MESSAGES] = SqlTable(source, None, plans)
    for name, table in tables.items():
        connection.register(name, table)
    try:
        answer = _with_types_of_files(connection.sql(sql))
        return SqlRows(answer.to_arrow_reader(_BATCH_ROWS), list(tables.values()), source)
    except duckdb.Error as error:
        _raise_failure(tables.values())
        reasons = [table.columns.reason for table in tables.values()]
        hints = [f"; {table.topic}: {reason}" for table, reason in zip(tables.values(), reasons, strict=True) if reason]
        hint = source.quoting_hint(sql, '"', str(error))
        raise ConfigError(f"sql: {_on_one_line(_reason(str(error), source))}{hint}{''.join(hints)}") from None


def _field_hint(connection: duckdb.DuckDBPyConnection, source: Source, sql: str, reason: str) -> str:
    """Hint to quote a field whose name is a word of SQL; empty if the statement names none."""
    words = connection.sql(
        "select keyword_name from duckdb_keywords() where keyword_category in ('reserved', 'type_function')"
    ).fetchall()
    fields = (name for topic in source.tables(sql) for name in source.columns(topic).schema.names)
    field = reserved_field(sql, reason, fields, {word for (word,) in words})
    return "" if field is None else f'; if the field {field} is meant, it stands in quotes: "{field}"'


def _with_types_of_files(answer: duckdb.DuckDBPyRelation) -> duckdb.DuckDBPyRelation:
    """The answer with text in place of what Arrow, Parquet or CSV have no type for."""
    types = list(map(_type_of_files, answer.types))
    if not any(types):
        return answer
    columns = (
        f"#{number}{f'::{kind}' if kind else ''} as {_quoted(name)}"
        for number, (name, kind) in enumerate(zip(answer.columns, types, strict=True), 1)
    )
    return answer.project(", ".join(columns))


#: Types whose values are text outside of DuckDB: Arrow would have bytes of a BIT, no zone of a time, and -1 for the
#: largest UHUGEINT.
_ONLY_DUCKDBS = ("interval", "union", "bignum", "bit", "time with time zone", "uhugeint")


def _type_of_files(kind: DuckDBPyType) -> str | None:
    """Type, in DuckDB's words, that a value of one is written as; None for its own."""
    if kind.id in _ONLY_DUCKDBS:
        return "varchar"
    if kind.id not in ("list", "array", "struct", "map"):
        return None
    parts: dict[str, Any] = dict(kind.children)
    size = parts.pop("size", None) if kind.id == "array" else None
    types = {name: _type_of_files(part) for name, part in parts.items()}
    if not any(types.values()):
        return None
    names = {name: types[name] or str(part) for name, part in parts.items()}
    if kind.id == "struct":
        return f"struct({', '.join(f'{_quoted(name)} {text}' for name, text in names.items())})"
    if kind.id == "map":
        return f"map({', '.join(names.values())})"
    return f"{names['child']}[{'' if size is None else size}]"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _on_one_line(text: str) -> str:
    """DuckDB's text on one line: what a caret points to in a line below is named instead."""
    if (found := _CARET.fullmatch(text)) is None:
        return " ".join(text.split())
    reason, number, line, blanks = found.groups()
    return f"{' '.join(reason.split())}; line {number}, at: {line[len(blanks) - len(f'LINE {number}: ') :].strip()}"


def _reason(text: str, source: Source) -> str:
    """DuckDB's text; if it proposes its own tables in place of an unknown one, the topics are listed instead."""
    unknown, has_proposal, _ = text.partition("does not exist!\nDid you mean")
    if not (has_proposal and "Table with name" in unknown):
        return text
    topics = source.table_names(source.topics_of_store())
    more = f" and {len(topics) - _SHOWN_TOPICS} more" if len(topics) > _SHOWN_TOPICS else ""
    return f"{unknown}does not exist; there are {', '.join([MESSAGES, *topics[:_SHOWN_TOPICS]])}{more}"


def _raise_failure(tables: Iterable[SqlTable]) -> None:
    """Raise the error that ended a scan, if there was one."""
    for table in tables:
        failure, table.failure = table.failure, None  # its traceback refers to `tables`: a cycle that is never freed
        if isinstance(failure, CorruptRecordError):
            advice = "or query all whole records, with a report of the rest, by --damaged skip (damaged='skip')"
            raise CorruptRecordError(failure.path, failure.offset, f"{failure.reason}; {advice}") from None
        if failure is not None:
            raise failure from None
