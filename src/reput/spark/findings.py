"""`audit` and `diff` in Spark's executors, their findings as DataFrames."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from reput.jobs.audit import job as audit_job
from reput.jobs.diff import job as diff_job
from reput.spark.runner import SparkRunner

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def audit(session: SparkSession, path: str | os.PathLike[str], **options: Any) -> DataFrame:
    """The findings of `reput.jobs.audit.job.audit`, a row each (`reput.jobs.findings.SCHEMA`); none for a clean store.

    Takes its options, and raises as it does.
    """
    result = audit_job.audit(path, runner=SparkRunner(session), **options)
    return session.createDataFrame(result.table)


def diff(
    session: SparkSession, left: str | os.PathLike[str], right: str | os.PathLike[str], **options: Any
) -> DataFrame:
    """Differences of two stores, as `reput.jobs.diff.job.diff` finds them: a row each (`reput.jobs.diff.match.SCHEMA`).

    Takes its options, and raises as it does. Damage that was passed over is not told here: `audit` both stores for it.
    """
    result = diff_job.diff(left, right, runner=SparkRunner(session), **options)
    return session.createDataFrame(result.table)
