"""Dispatch of the logs of stores by one Spark query, or by a loop in this process: `dispatch`."""

from reput.extras import saying_the_extra

with saying_the_extra(__name__):
    from reput.spark.dispatch.job import DispatchResult, dispatch

__all__ = ["DispatchResult", "dispatch"]
