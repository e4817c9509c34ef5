"""Application `reput`, and its exit statuses (`_STATUSES`, docs/commands.md). A command with findings returns 1.

Commands import heavy modules inside their functions, so that `reput --help` answers immediately.
"""

from __future__ import annotations

import errno
import sys
import traceback
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, NoReturn

import typer

import reput
from reput.cli import interrupts
from reput.cli import start as process
from reput.cli.command import Command, CommandGroup, help_of
from reput.cli.commands import (
    archive,
    audit,
    backup,
    broker,
    config,
    consume,
    delete_expired,
    diff,
    dispatch,
    follow,
    get,
    import_,
    info,
    man,
    namesrv,
    produce,
    prune,
    put,
    query,
    rebuild,
    rejoin,
    repair,
    replay,
    restore,
    tail,
    top,
    warm,
)
from reput.cli.commands.admin import admin
from reput.cli.commands.dump import dump
from reput.cli.commands.export import export
from reput.cli.commands.stats import stats
from reput.cli.defaults import read_defaults
from reput.cli.display.output import write_error, write_text
from reput.errors import ConfigError, ReputError
from reput.extras import what_to_install

_STATUSES = (
    "Exit status: 0 fine, also Ctrl-C if nothing else ends the command; 1 findings beside the result: damage, "
    "differences, rejected bodies or rows, lost messages; 2 could not run: wrong usage, bad input, no such store, no "
    "space, a broker that does not answer, damage that is refused; 130 interrupted before the end; 141 the reader of a "
    "pipe has ended."
)
_FINE, _COULD_NOT_RUN, _BROKEN_PIPE = 0, 2, 141
#: Longest line of help; a narrower terminal has shorter ones, and without a terminal they are of 80 characters.
_WIDEST_HELP = 120
#: Errors of a standard output that is closed, or a file on a full or failing disk.
_NO_OUTPUT = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)


class Application(CommandGroup):
    """Turns what a command returns or raises into the exit status, and an error into one line on stderr."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Find the command, and take its defaults from the user's file."""
        name, command, rest = super().resolve_command(ctx, args)
        if name is not None and not ctx.resilient_parsing:
            ctx.default_map = read_defaults(name, command, NAMES)
        return name, command, rest

    def what_is_meant(self, name: str) -> str:
        """Hint in the error of an unknown command; one of `reput admin` is named."""
        is_of_admin = any(command.name == name for command in admin.admin.registered_commands)
        return f"; it is `reput admin {name}`" if is_of_admin else super().what_is_meant(name)

    def invoke(self, ctx: Any) -> Any:
        """Run the command; if a package of an extra is missing, its error says what to install."""
        try:
            return super().invoke(ctx)
        except ModuleNotFoundError as error:
            if (line := what_to_install(error, f"{ctx.command_path} {ctx.invoked_subcommand}")) is None:
                raise
            raise ConfigError(line) from error

    def main(self, *args: Any, **options: Any) -> NoReturn:
        """Run one command and end the process with its status."""
        try:
            if sys.stdout is None:  # closed by the shell: `>&-`
                raise OSError(errno.EBADF, "it is closed")
            status = self._run(*args, **options) or _FINE
            sys.stdout.flush()  # else Python flushes at the end of the process, and an error changes no exit status
        except ReputError as error:
            write_error(str(error))
            status = _COULD_NOT_RUN
        except typer.TyperException as error:  # wrong usage
            write_error(_what_is_wrong(error))
            status = _COULD_NOT_RUN
        except SystemExit as error:  # 0 by Typer's completion
            # Else Typer and rich raise it when the reader of a pipe has ended: `reput dump STORE | head`.
            status = _BROKEN_PIPE if error.code else _FINE
        except BrokenPipeError:
            status = _BROKEN_PIPE
            sys.stdout = None  # its buffer cannot be written
        except OSError as error:  # an error of a store's file would be a StoreError
            if error.errno not in _NO_OUTPUT or error.filename is not None:
                traceback.print_exc()
            else:
                write_error(f"cannot write the output: {error.strerror}")
            status = _COULD_NOT_RUN
            sys.stdout = None
        except Exception:  # a bug; Python would end with 1, which means findings here
            traceback.print_exc()
            status = _COULD_NOT_RUN
        sys.exit(status)

    def _run(self, *args: Any, **options: Any) -> int | None:
        """Run one command and return its status. An interrupt is raised, whatever a library has made of it."""
        try:
            status: int | None = super().main(*args, **{**options, "standalone_mode": False})
        except BaseException:
            if interrupts.is_interrupted():
                raise KeyboardInterrupt from None
            raise
        if status == interrupts.STATUS:  # Typer's
            raise KeyboardInterrupt
        return status


app = typer.Typer(
    cls=Application,
    name="reput",
    epilog=_STATUSES,
    context_settings={"max_content_width": _WIDEST_HELP},
    rich_markup_mode=None,  # boxes take 0.2 s to import
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def application(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    """Apache RocketMQ's message store: write, read, inspect, rebuild, count, export, import and back up.

    Which command does what, and what all have in common: docs/commands.md.
    """
    if version:
        write_text(f"reput {reput.__version__}")
    elif context.invoked_subcommand is None:
        write_text(context.get_help())


def _what_is_wrong(error: typer.TyperException) -> str:
    """Line about wrong usage; if it is no argument's value, with the help that lists what there is."""
    text = str(error.format_message()).replace("Value error, ", "")
    context = getattr(error, "ctx", None)
    if context is None or (getattr(error, "param", None) is not None and not text.startswith("Missing")):
        return text
    return f"{text.rstrip('.')}; see {context.command_path} --help"


def _name(command: Callable[..., int | None]) -> str:
    return command.__name__.rstrip("_").replace("_", "-")


#: Commands that have logs always, with the option --log-level, and no progress.
_SERVING = "Serve"
_COMMANDS: dict[str, tuple[Callable[..., int | None], ...]] = {
    "Read and write a store": (put.put, get.get, tail.tail, query.query, dump.dump, info.info, top.top),
    "Check and mend": (audit.audit, diff.diff, repair.repair, rebuild.rebuild),
    "Data pipeline": (stats.stats, export.export, import_.import_, replay.replay),
    "Backups": (backup.backup, backup.backups, archive.archive, restore.restore, prune.prune),
    _SERVING: (broker.broker, namesrv.namesrv),
    "Send and consume": (produce.produce, consume.consume),
    "Replicate": (follow.follow, rejoin.rejoin),
    "Run a store": (dispatch.dispatch, delete_expired.delete_expired, config.config, warm.warm),
    "Help": (man.man,),
}
#: Names of all commands, also of those that a process leaves out.
NAMES = [*(_name(command) for group in _COMMANDS.values() for command in group), str(admin.admin.info.name)]
for _heading, _group in _COMMANDS.items():
    for _command in _group:
        _cls = None if _heading == _SERVING else Command
        app.command(_name(_command), cls=_cls, help=help_of(_command), rich_help_panel=_heading)(_command)

app.add_typer(admin.admin, rich_help_panel="Operate brokers")


def main() -> None:
    """Run one command, and end the process with its status.

    Typer makes the parameters of all commands that it is given, which takes as long as many a command.
    """
    named = [command for command in app.registered_commands if command.name in sys.argv[1:2]]
    if sys.argv[1:2] == [man.man.__name__]:  # it has all of them
        named = []
    if sys.argv[1:2] == [admin.admin.info.name]:
        app.registered_commands = []
    elif named:
        app.registered_commands, app.registered_groups = named, []
    process.run(partial(app, prog_name="reput"))
