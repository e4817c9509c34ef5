"""Time of each command: first ever, first in a process, and once more within one process."""

from __future__ import annotations

import os
import shlex
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO

from lab.bench import messages
from lab.bench.figures import Figure, Goal, stopwatch
from lab.bench.processes import run_command
from lab.bench.setting import Setting, fill
from reput.cli.main import app

_MESSAGES = 1_000
#: Arguments by command; {store} holds 1 000 messages, {output} is new each time.
_COMMANDS = {
    "--help": "--help",
    "info": "info {store}",
    "get": f"get {{store}} --topic {messages.TOPIC} --max-num 10",
    "query": f"query {{store}} --topic {messages.TOPIC} --key {messages.key(1)}",
    "dump": "dump {store} --limit 10",
    "put": "put {output} --topic orders --body hello",
    "stats": "stats {store} --runner local",
    "audit": "audit {store} --runner local",
    "diff": "diff {store} {store} --runner local",
    "query --sql": 'query {store} --sql "select count(*) from messages"',
    "export": "export {store} {output} --runner local",
    "rebuild": "rebuild {store} --output {output} --runner local",
}
#: From the start of a process to its result, of the jobs.
_GOALS = dict.fromkeys(("query", "stats", "audit", "diff", "query --sql", "export", "rebuild"), Goal(most=1.5))
#: Of this one a quick run measures all three figures, of the others, which take seconds to compile kernels, the last.
_QUICK_COMMAND = "--help"


def measure(setting: Setting) -> list[Figure]:
    """Three figures a command, over a store of 1 000 messages."""
    store = setting.folder("small")
    fill(store, _MESSAGES)
    figures = []
    for name in _COMMANDS:
        if not setting.quick or name == _QUICK_COMMAND:
            figures += _in_processes(setting, name, store)
        figures.append(_within_one_process(setting, name, store))
    return figures


def _in_processes(setting: Setting, name: str, store: str) -> list[Figure]:
    """The first start ever, and those that find compiled kernels."""
    interpreter = ("start of the interpreter", setting.limits["start of the interpreter"])
    ever, first = (
        Figure(f"reput {name}, first ever", "s", limit=interpreter, note="no compiled kernels"),
        Figure(f"reput {name}, first in a process", "s", limit=interpreter, goal=_GOALS.get(name)),
    )
    arguments, cache_path = _arguments(setting, name, store), setting.folder("cache")
    with stopwatch() as watch:
        run_command(arguments, cache_path=cache_path)
    ever.values.append(watch.seconds)
    for _ in range(setting.repeats):
        arguments = _arguments(setting, name, store)
        with stopwatch() as watch:
            run_command(arguments, cache_path=cache_path)
        first.values.append(watch.seconds)
    if sum(entry.startswith("kernels-") for entry in os.listdir(cache_path)) > 1:
        first.note = "not to be trusted: sources changed meanwhile, and kernels were compiled again"
    return [ever, first]


def _within_one_process(setting: Setting, name: str, store: str) -> Figure:
    """The command's function in this process, after a call that is not measured."""
    warm = Figure(f"reput {name}, warm", "s", note="within one process")
    for i in range(1 + setting.repeats):
        arguments = _arguments(setting, name, store)
        with stopwatch() as watch:
            _run_here(arguments)
        if i:
            warm.values.append(watch.seconds)
    return warm


def _arguments(setting: Setting, name: str, store: str) -> list[str]:
    """A command line whose output does not exist yet."""
    output = setting.folder("output")
    setting.remove(output)
    return shlex.split(_COMMANDS[name].format(store=store, output=output))


def _run_here(arguments: list[str]) -> None:
    output = StringIO()
    try:
        with redirect_stdout(output), redirect_stderr(output):
            app(arguments)
    except SystemExit as end:
        if end.code:
            raise AssertionError(f"reput {arguments[0]} ended with {end.code}: {output.getvalue()}") from end
