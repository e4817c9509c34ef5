"""`audit` and `diff` on Spark's executors, with their findings as DataFrames."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from reput.config.arguments import check_path
from reput.jobs.audit import job as audit_job
from reput.jobs.diff import job as diff_job
from reput.spark.arguments import check_arguments
from reput.spark.runner import SparkRunner

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def audit(session: SparkSession, path: str | os.PathLike[str], **options: Any) -> DataFrame:
    """Audit a store: a row for each finding of `reput.jobs.audit.job.audit` (`reput.jobs.findings.SCHEMA`).

    Takes the options of that function, and raises as it does.
    """
    check_arguments(session=session)
    check_path("path", path)
    result = audit_job.audit(path, runner=SparkRunner(session), **options)
    return session.createDataFrame(result.table)


def diff(
    session: SparkSession, left: str | os.PathLike[str], right: str | os.PathLike[str], **options: Any
) -> DataFrame:
    """Compare two stores: a row for each difference of `reput.jobs.diff.job.diff` (`reput.jobs.diff.match.SCHEMA`).

    Takes the options of that function, and raises as it does. The rows do not show damage that was passed over: `audit`
    both stores for it.
    """
    check_arguments(**locals())
    result = diff_job.diff(left, right, runner=SparkRunner(session), **options)
    return session.createDataFrame(result.table)
