"""Time of each command, from its start to its result: first ever, and with compiled kernels."""

from __future__ import annotations

import os
import shlex

from lab.bench import messages
from lab.bench.figures import Figure, Goal, stopwatch
from lab.bench.processes import run_command
from lab.bench.setting import Setting, fill

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
#: Commands that a quick run measures; the others take seconds to compile kernels.
_QUICK = ("--help",)


def measure(setting: Setting) -> list[Figure]:
    """Two figures a command, over a store of 1 000 messages."""
    store = setting.folder("small")
    fill(store, _MESSAGES)
    return [figure for name in (_QUICK if setting.quick else _COMMANDS) for figure in _measure(setting, name, store)]


def _measure(setting: Setting, name: str, store: str) -> list[Figure]:
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


def _arguments(setting: Setting, name: str, store: str) -> list[str]:
    """A command line whose output does not exist yet."""
    output = setting.folder("output")
    setting.remove(output)
    return shlex.split(_COMMANDS[name].format(store=store, output=output))
