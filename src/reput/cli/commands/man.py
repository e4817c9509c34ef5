"""`reput man`: a manual page of each command, made from its help."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Annotated, Any

import typer

import reput
from reput.cli.command import EXAMPLES_MARK
from reput.cli.display.output import write_json, write_text
from reput.cli.options import Json, check_path
from reput.counts import counted

_SECTION = 1


def man(
    context: typer.Context,
    folder: Annotated[
        str, typer.Argument(metavar="DIR", callback=check_path, help="The folder; a missing one is made.")
    ],
    *,
    as_json: Json = False,
) -> None:
    """Write a manual page of each command: `man reput-audit` shows it from a folder of the MANPATH.

    In the folder ~/.local/share/man/man1 most systems find them. They have what --help shows.

    Example:
      reput man /tmp/man/man1
    """
    from reput.files import DISK

    DISK.make_directories(folder)
    root = context.find_root().command
    pages = {f"{'-'.join(words)}.{_SECTION}": man_page(words, command, root) for words, command in _commands(root)}
    for name, page in pages.items():
        DISK.write_atomically(os.path.join(folder, name), page.encode())
    if as_json:
        write_json({"folder": folder, "pages": list(pages)})
    else:
        first = os.path.join(folder, next(iter(pages)))
        write_text(f"{counted(len(pages), 'manual page')} in {folder}: man -l {first}")


def _commands(command: Any, words: tuple[str, ...] = ("reput",)) -> Iterator[tuple[tuple[str, ...], Any]]:
    """A command and those below it, each with the words that name it."""
    yield words, command
    for name, one in getattr(command, "commands", {}).items():
        yield from _commands(one, (*words, name))


def man_page(words: tuple[str, ...], command: Any, root: Any) -> str:
    """Page of a command in the language of `man`: name, synopsis, examples, description, options, exit status."""
    context = typer.Context(command, info_name=" ".join(words))
    summary, *paragraphs = (command.help or root.help).split("\n\n")
    examples = [text for text in paragraphs if text.startswith(EXAMPLES_MARK)]
    rest = [text for text in paragraphs if text not in examples]
    records = [record for param in command.get_params(context) if (record := param.get_help_record(context))]
    commands = [(name, one.get_short_help_str(200)) for name, one in getattr(command, "commands", {}).items()]
    names = ["-".join(found) for found, _ in _commands(root) if found != words]
    lines = [f'.TH "{"-".join(words).upper()}" "{_SECTION}" "" "reput {reput.__version__}"']
    lines += [".SH NAME", f"{_roff('-'.join(words))} \\- {_roff(summary).rstrip('.')}"]
    lines += [".SH SYNOPSIS", f"{_bold(' '.join(words))} {_roff(' '.join(command.collect_usage_pieces(context)))}"]
    for text in examples:
        lines += [".SH EXAMPLES", ".nf", *(_roff(line) for line in text.splitlines()[2:]), ".fi"]
    if rest:
        lines += [".SH DESCRIPTION", *(line for text in rest for line in (".PP", _roff(text)))]
    for heading, pairs in (("OPTIONS", records), ("COMMANDS", commands)):
        if pairs:
            lines += [f".SH {heading}", *(line for name, text in pairs for line in (".TP", _bold(name), _roff(text)))]
    lines += [".SH EXIT STATUS", _roff(root.epilog.removeprefix("Exit status: "))]
    others = names if command is root else names[:1]
    lines += [".SH SEE ALSO", _roff(", ".join(f"{name}({_SECTION})" for name in others))]
    return "\n".join(lines) + "\n"


def _bold(text: str) -> str:
    return f"\\fB{_roff(text)}\\fR"


def _roff(text: str) -> str:
    """Text on one line that `man` shows as it is: it is no request."""
    escaped = " ".join(text.split()).replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped
