"""Dispatch of the logs of stores by one Spark query, or by a loop in this process: `dispatch`."""

from reput.spark.dispatch.job import DispatchResult, dispatch

__all__ = ["DispatchResult", "dispatch"]
