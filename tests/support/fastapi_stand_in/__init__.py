"""The part of FastAPI that docs/client/fastapi.md uses, which is not installed here: a lifespan, and calls by path."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any


class Request:
    """Argument of a function that asks for the request."""

    def __init__(self, app: FastAPI) -> None:
        self.app = app


class FastAPI:
    def __init__(self, *, lifespan: Callable[[FastAPI], Any]) -> None:
        self.state = SimpleNamespace()
        self.lifespan = lifespan
        self._posts: list[tuple[re.Pattern[str], Callable[..., Any]]] = []

    def post(self, path: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        pattern = re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", path))

        def keep(function: Callable[..., Any]) -> Callable[..., Any]:
            self._posts.append((pattern, function))
            return function

        return keep

    async def call(self, path: str) -> Any:
        """Result of the function of a path."""
        function, found = next((one, match) for pattern, one in self._posts if (match := pattern.fullmatch(path)))
        named = found.groupdict()
        for name, parameter in inspect.signature(function, eval_str=True).parameters.items():
            if parameter.annotation is Request:
                named[name] = Request(self)
        return await function(**named)
