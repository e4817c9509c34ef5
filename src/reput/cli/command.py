"""Command of reput: its help, `--quiet` and `--verbose`, former names of options, and the check of its ways."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from copy import copy
from difflib import get_close_matches
from itertools import groupby
from operator import attrgetter
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from reput.cli.display.logs import logs_on_stderr
from reput.cli.display.output import no_progress
from reput.cli.option_rules import check_numbers, check_ways

#: Characters of a command's first sentence.
_NO_LIMIT = 1000
#: How alike a name is that is proposed: what shares a verb alone is not, as many a command deletes.
_ALIKE = 0.8
#: Begin of a paragraph whose lines stay as they are; the examples of a command are one.
EXAMPLES_MARK = "\b\nExample"
#: Names that options had, kept for one release, with those that they have.
_FORMER = {"--broker-conf": "--config", "--config": "--client-config"}


def options_by_name(command: Any) -> dict[str, Any]:
    """Options of a command by their long names, and by former ones, which no help shows."""
    named = {name: param for param in command.params for name in param.opts if name.startswith("--")}
    return {former: named[name] for former, name in _FORMER.items() if name in named} | named


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

    def make_parser(self, ctx: Any) -> Any:
        """Parser of the command's words, which takes former names, too."""
        parser = super().make_parser(ctx)
        for name, option in options_by_name(self).items():
            if name not in option.opts:
                former = copy(option)
                former.opts = [name]
                former.add_to_parser(parser, ctx)
        return parser

    def invoke(self, ctx: Any) -> Any:
        """Run the command; raises ConfigError for a number without end, and an option without meaning in this way."""
        check_numbers(ctx)
        check_ways(ctx)
        return super().invoke(ctx)


class CommandGroup(TyperGroup):
    """Group of commands, whose help has the first sentence of each, whole."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Find the command; the error about one that is none tells what may be meant."""
        self.suggest_commands = False  # Typer proposes `delete-topic` for `delete-group`
        try:
            return super().resolve_command(ctx, args)
        except typer.TyperException as error:
            if meant := self.what_is_meant(args[0]):
                error.message = error.message.rstrip(".") + meant
            raise

    def what_is_meant(self, name: str) -> str:
        """Hint in the error of an unknown command: a name that differs by a letter or two, or nothing."""
        nearest = get_close_matches(name, self.commands, 1, _ALIKE)
        return f". Did you mean {nearest[0]!r}?" if nearest else ""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands to the help in groups, each below its heading; the columns of all groups line up."""
        width = max(map(len, self.commands))
        for heading, group in groupby(self.commands.values(), attrgetter("rich_help_panel")):
            with formatter.section(heading if isinstance(heading, str) else "Commands"):
                formatter.write_dl([(f"{one.name:{width}}", one.get_short_help_str(_NO_LIMIT)) for one in group])
