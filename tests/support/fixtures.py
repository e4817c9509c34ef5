"""Types of what fixtures give."""

from __future__ import annotations

from collections.abc import Callable

import reput

OpenStore = Callable[..., reput.MessageStore]
