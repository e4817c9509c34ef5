"""Arguments of the functions of Spark: what is none is refused by its name, before Spark is asked for anything."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

import reput
import reput.spark
from reput.errors import ConfigError
from reput.jobs.query.sql_job import Source
from reput.spark.dispatch import dispatch
from reput.spark.runner import SparkRunner
from reput.spark.sql import query_sql_on_spark
from tests.support.bad_arguments import bad_values, check_refused, names_in, parameters

STORE, NEW = "store", "new"


class Session:
    """A session that is none: a function that asks it for anything fails, but for a setting."""

    conf: ClassVar[dict[str, str]] = {}
    sparkContext = "none"

    def createDataFrame(self) -> None:
        raise AssertionError("Spark is asked")

    toArrow = createDataFrame


#: Right arguments of each function.
GOOD: dict[Callable[..., Any], dict[str, Any]] = {
    reput.spark.audit: {"session": Session(), "path": STORE},
    reput.spark.diff: {"session": Session(), "left": STORE, "right": STORE},
    reput.spark.explain: {"frame": Session()},
    reput.spark.read_log: {"spark": Session(), "path": STORE},
    reput.spark.read_log_stream: {"spark": Session(), "path": STORE},
    reput.spark.register: {"spark": Session()},
    reput.spark.session: {},
    reput.spark.statistics_stream: {"spark": Session(), "path": STORE},
    dispatch: {"store_path": STORE, "output": NEW, "session": None, "once": True},
    query_sql_on_spark: {"spark": Session(), "source": Source(path=STORE), "sql": "select 1"},
    SparkRunner: {"session": Session()},
}
#: Of the progress anything is read that has the parts; accumulators are put into a dict.
ELSEWHERE = {"progress", "undecoded"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("arguments")
    with reput.MessageStore.open(path / STORE, small=True, dispatch="external") as store:
        store.put_message(reput.Message("orders", b"x"))
    return path


@pytest.mark.parametrize(
    ("function", "name"),
    [
        pytest.param(one, name, id=f"{one.__name__}-{name}")
        for one in GOOD
        for name in parameters(one)
        if name not in ELSEWHERE
    ],
)
def test_what_is_no_argument_is_refused_before_spark_is_asked(
    folder: Path, function: Callable[..., Any], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    before = names_in(folder)
    check_refused(function, GOOD[function], name, bad_values(function, name))
    assert names_in(folder) == before


@pytest.mark.parametrize("value", [None, b"4g", ["4g"], {"a": 1}, object()])
def test_what_is_no_setting_is_refused_before_java_starts(value: Any) -> None:
    with pytest.raises(ConfigError, match=r"^spark\.driver\.memory .*: expected a text"):
        reput.spark.session(**{"spark.driver.memory": value})


def test_what_is_no_progress_of_a_query_is_refused() -> None:
    check_refused(reput.spark.bytes_behind_latest, {}, "progress", [5, object()])


def test_all_functions_of_spark_are_in_the_table() -> None:
    public = {getattr(reput.spark, name) for name in reput.spark.__all__}
    of_table = {one for one in GOOD if inspect.isfunction(one) and one not in (dispatch, query_sql_on_spark)}
    assert public == of_table | {reput.spark.bytes_behind_latest}
