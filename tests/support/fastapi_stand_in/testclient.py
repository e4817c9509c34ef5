"""The client for tests: runs the lifespan, and calls what the application has."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, Self

from fastapi import FastAPI


class TestClient:
    def __init__(self, app: FastAPI) -> None:
        self._app, self._runner = app, asyncio.Runner()

    def __enter__(self) -> Self:
        self._lifespan = self._app.lifespan(self._app)
        self._runner.run(self._lifespan.__aenter__())
        return self

    def __exit__(self, *error: Any) -> None:
        self._runner.run(self._lifespan.__aexit__(*error))
        self._runner.close()

    def post(self, path: str) -> Any:
        answer = self._runner.run(self._app.call(path))
        return SimpleNamespace(json=lambda: answer)
