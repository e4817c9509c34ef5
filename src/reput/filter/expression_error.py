"""ExpressionError, apart from the modules that compile expressions, which need Arrow."""

from __future__ import annotations

from reput.errors import SubscriptionError


class ExpressionError(SubscriptionError):
    """Raised when an expression does not compile; consumers get RocketMQ's SUBSCRIPTION_PARSE_FAILED."""
