"""Treatment of planned messages that are gone: the option `failOnDataLoss`."""

from __future__ import annotations

import logging

from reput.errors import CorruptRecordError, DataLossError
from reput.spark.wire.options import WireReadOptions

logger = logging.getLogger("reput.spark")


def tell_loss(options: WireReadOptions, error: DataLossError | CorruptRecordError) -> None:
    """Raise the error, or log it, by option `failOnDataLoss`."""
    if not options.fail_on_data_loss:
        logger.warning("%s. failOnDataLoss=false: go on without them", error)
        return
    if isinstance(error, DataLossError):
        raise DataLossError(f"{error}. Set failOnDataLoss=false to go on without them")
    raise error
