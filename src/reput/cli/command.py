"""Command of reput: its help, with examples first, and the options `--quiet` and `--verbose`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from reput.cli.logs import logs_on_stderr
from reput.cli.output import no_progress

#: Begin of a paragraph whose lines stay as they are; the examples of a command are one.
EXAMPLES_MARK = "\b\nExample"


def help_of(command: Callable[..., int | None]) -> str:
    """Docstring of a command for its help: what it does in a sentence, examples, then all the rest."""
    summary, *paragraphs = inspect.cleandoc(command.__doc__ or "").split("\n\n")
    examples = [f"\b\n{text}" for text in paragraphs if text.startswith("Example")]
    return "\n\n".join([summary, *examples, *(text for text in paragraphs if not text.startswith("Example"))])


def _quiet(context: typer.Context, is_given: bool) -> None:
    if is_given and not context.resilient_parsing:
        context.with_resource(no_progress())


def _verbose(context: typer.Context, is_given: bool) -> None:
    if is_given and not context.resilient_parsing:
        context.with_resource(no_progress())  # its bars would be torn by the lines
        context.with_resource(logs_on_stderr("debug", as_json=False))


def _options(
    *,
    quiet: Annotated[
        bool, typer.Option("--quiet", callback=_quiet, expose_value=False, help="No progress: only errors and results.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", callback=_verbose, expose_value=False, help="Logs on stderr, no progress.")
    ] = False,
) -> None:
    """Function whose options all commands have; it is never called."""


_application = typer.Typer(add_completion=False)
_application.command()(_options)
_OPTIONS = typer.main.get_command(_application).params


class Command(TyperCommand):
    """Command with the options `--quiet` and `--verbose` behind its own; those that serve have `--log-level`."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.params = [*self.params, *_OPTIONS]
