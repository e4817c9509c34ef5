"""A run's figures into the docs: `python -m lab.bench.publish FILE.json`, at the project's root.

Writes lab/figures.json; the few that a user asks about, between the two marks of docs/figures.md; the run and the
machine's limits, between those of lab/figures.md; and a page for each part beside it, lab/figures-PART.md, with a table
for each question.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from lab.bench.main import QUESTIONS
from lab.bench.report import format_value
from lab.campaign.pages import markdown_table, write_between_marks

_LAB = Path(__file__).parents[1]
_PROTOTYPE, _APACHE, _USER, _BUDGET = "prototype", "RocketMQ", "patience", "budget"
#: What a user asks about, and the figure that answers; what reput loses is among them.
CHOSEN = {
    "put an Arrow table, until its messages can be consumed": "put_arrow, appended and dispatched, recycled memory",
    "put single messages by 64 threads, each synced": "put_message, SYNC_FLUSH, 64 threads",
    "find a message by its key, one key a call": "query_message, one key a call",
    "start a killed store of 1 GB": "recovery of a killed store",
    "make queues and index anew from the log": "rebuild of queues and index, synced",
    "export a log to Parquet, beside a consumer that writes nothing": "export to Parquet, all columns, synced",
    "read a store by Spark, all columns": "spark source, all columns",
    "write a store by Spark": "sink of messages that Spark makes",
    "send to the broker, by 16 threads of RocketMQ's client": "broker, send, ASYNC_FLUSH, 16 threads",
    "pull 32 messages a call, by one thread": "broker, pulls of 32, 1 thread",
    "consume a backlog by a push consumer": "broker, push consumer with a backlog",
    "from a send to the listener of a push consumer": "broker, send to push consumer, 1000/s, p50",
    "pop 32 messages a call, and ack each": "broker, pops of 32, each message acked",
    "send by 64 tasks of reput's client, beside Java's threads": "client, sends from 64 tasks, beside as many threads",
    "let a slave catch up": "slave of reput's master, catch-up until dispatched",
}


class _Question(NamedTuple):
    title: str
    #: Where its goals come from, a word of the page's list.
    origin: str


_PARTS: dict[str, dict[str, _Question]] = {
    "Writing": {
        "put_arrow": _Question("Tables put", _PROTOTYPE),
        "put_messages": _Question("Batches of messages put", _PROTOTYPE),
        "put_message": _Question("Single puts", _PROTOTYPE),
        "sync_flush": _Question("Single puts, synced", _PROTOTYPE),
    },
    "Reading": {
        "get_message": _Question("Gets", _PROTOTYPE),
        "query_message": _Question("Queries by key", _PROTOTYPE),
        "read_log": _Question("A log as Arrow", _PROTOTYPE),
    },
    "Jobs": {
        "rebuild": _Question("Rebuild", _PROTOTYPE),
        "audit": _Question("Audit", _PROTOTYPE),
        "statistics": _Question("Statistics", _PROTOTYPE),
        "export": _Question("Export", _PROTOTYPE),
        "import": _Question("Import", _PROTOTYPE),
        "tables": _Question("Tables that follow a log", _USER),
        "backup": _Question("Backup", _USER),
        "dispatch": _Question("Dispatch by another process", _USER),
        "commands": _Question("Commands, from start to result", _USER),
    },
    "Start and memory": {
        "recovery": _Question("Start of a killed store", _APACHE),
        "open_store": _Question("Open", _USER),
        "many_queues": _Question("Ten thousand queues", _USER),
        "memory": _Question("Memory", _BUDGET),
    },
    "Spark": {
        "spark_source": _Question("Source", _PROTOTYPE),
        "spark_stream": _Question("Stream", _USER),
        "spark_sink": _Question("Sink", _PROTOTYPE),
        "spark_wire": _Question("Messages of a broker", _PROTOTYPE),
    },
    "Replication": {
        "follow": _Question("Slaves: catch-up and lag", _APACHE),
        "broker.replication": _Question("Sends that wait for a slave", _APACHE),
    },
    "Broker and client": {
        "broker.sends": _Question("Sends", _APACHE),
        "broker.sync": _Question("Synced sends", _APACHE),
        "broker.batches": _Question("Batches", _APACHE),
        "broker.pulls": _Question("Pulls", _APACHE),
        "broker.push": _Question("Push consumers", _APACHE),
        "broker.pops": _Question("Pops and acks", _APACHE),
        "broker.requests": _Question("Messages sent back, with a delay or a time", _BUDGET),
        "broker.timers": _Question("Timers", _USER),
        "broker.stalls": _Question("Stalls", _USER),
        "broker.cold": _Question("Old messages beside sends", _APACHE),
        "broker.start": _Question("Start and memory of a broker", _APACHE),
        "broker.clients": _Question("The client", _APACHE),
    },
}  # fmt: skip


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m lab.bench.publish", description=__doc__.partition("\n")[0])
    parser.add_argument("run", metavar="FILE.json", help="what `python -m lab.bench.main --all` has kept")
    options = parser.parse_args(arguments)
    run = json.loads(Path(options.run).read_text())
    (_LAB / "figures.json").write_text(json.dumps(run) + "\n")
    write_between_marks(_LAB.parent / "docs" / "figures.md", chosen(run))
    write_between_marks(_LAB / "figures.md", overview(run))
    for name, text in parts(run).items():
        (_LAB / name).write_text(text)


def chosen(run: Mapping[str, Any]) -> str:
    """The run, and a row for each figure that a user asks about; ValueError for one that the run does not have."""
    answers = {one["name"]: (name, one) for name, figures in _counted(run).items() for one in figures}
    if missing := [name for name in CHOSEN.values() if name not in answers]:
        raise ValueError(
            f"the run has no figure of {'; '.join(missing)}: measure with --all, or mend CHOSEN in lab/bench/publish.py"
        )
    facts = (
        ("date", run["begun"][:10]),
        ("machine", f"{run['system']}, {run['processors']} processors"),
        ("command", f"`python -m lab.bench.main --all --scale {run['scale']:g}`, of reput {run['reput']}"),
        ("one row alone", f"`--only` and the word of its last column, in place of `--all`; {_rounds(run)}"),
    )
    rows = [_chosen_row(asked, *answers[name]) for asked, name in CHOSEN.items()]
    head = ("what", "reput", "RocketMQ", "times as fast", "goal", "", "`--only`")
    return markdown_table(("the run", ""), facts) + markdown_table(head, rows).removeprefix("\n")


def _chosen_row(asked: str, question: str, figure: Mapping[str, Any]) -> tuple[str, ...]:
    other, unit = figure["other"], figure["unit"]
    return (
        asked,
        _value(figure["median"], unit),
        _value(other["median"], unit) if other else "",
        f"{other['times']:.2f}" if other else "",
        ", ".join(_goals(figure)),
        _shown(_verdict(figure)),
        f"`{question}`",
    )


def overview(run: Mapping[str, Any]) -> str:
    """The run, the machine's limits, and the pages of the parts; ValueError for a question without a part."""
    questions = _counted(run)
    placed = {name for part in _PARTS.values() for name in part}
    if missing := set(run["questions"]) - placed - {"limits"}:
        raise ValueError(f"no place for {', '.join(sorted(missing))}: name them in lab/bench/publish.py")
    pages = [
        (f"[{part}]({page_name(part)})", "; ".join(one.title for name, one in contents.items() if name in questions))
        for part, contents in _PARTS.items()
    ]
    limits = _limits(questions["limits"])
    return "".join(
        (
            _of_run(run, questions), _not_asked(questions), "## The parts\n", markdown_table(("page", "of"), pages),
            "## The machine's limits\n", limits,
        )
    )  # fmt: skip


def parts(run: Mapping[str, Any]) -> dict[str, str]:
    """The page of each part by its file's name: a table for each question."""
    questions = _counted(run)
    return {page_name(part): _part(run, part, contents, questions) for part, contents in _PARTS.items()}


def page_name(part: str) -> str:
    """The file of a part, beside lab/figures.md."""
    return f"figures-{part.lower().replace(' ', '-')}.md"


def _part(
    run: Mapping[str, Any], part: str, contents: Mapping[str, _Question], questions: Mapping[str, list[dict[str, Any]]]
) -> str:
    texts = [
        f"# Figures: {part}\n\nWritten by `python -m lab.bench.publish` out of "
        f"[figures.json](figures.json), a run of {run['begun'][:10]}. [All figures](figures.md) tells how it was made, "
        "and how to read the tables.\n\n"
    ]
    for name in contents:
        if name in questions:
            texts += [
                f"## {contents[name].title}\n\n{_sentence(name)}\n",
                _table(questions[name], contents[name].origin),
            ]
    return "".join(texts).rstrip("\n") + "\n"


def _counted(run: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """The questions whose figures count."""
    return {name: figures for name, figures in run["questions"].items() if not _has_failures(figures)}


def _has_failures(figures: Sequence[Mapping[str, Any]]) -> bool:
    """Whether requests failed that must not: figures of others than were asked for say nothing."""
    return any(": failed requests, " in figure["name"] and _verdict(figure) == "missed" for figure in figures)


def _not_asked(questions: Mapping[str, Any]) -> str:
    """The questions that the run has no figures of, or none that count."""
    titles = [one.title for part in _PARTS.values() for name, one in part.items() if name not in questions]
    return f"Not measured in this run: {'; '.join(titles)}.\n\n" if titles else ""


def _of_run(run: Mapping[str, Any], questions: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    verdicts = [_verdict(figure) for figures in questions.values() for figure in figures]
    met, count = verdicts.count("met"), len(verdicts) - verdicts.count("")
    facts = (
        ("begun", run["begun"]),
        ("scale", f"{run['scale']:g}; {_rounds(run)}"),
        ("reput, Python", f"{run['reput']}, {run['python']}"),
        ("NumPy, Numba, Arrow", f"{run['numpy']}, {run['numba']}, {run['pyarrow']}"),
        ("system", f"{run['system']}, {run['processors']} processors"),
        ("load at the start", f"{run['load_at_the_start']:.2f}"),
        ("goals met", f"{met} of {count}"),
    )
    return markdown_table(("the run", ""), facts)


def _rounds(run: Mapping[str, Any]) -> str:
    return f"each figure is the median of {run['repeats']} rounds, or more"


def _sentence(name: str) -> str:
    """The first line of the question's module."""
    return (QUESTIONS[name].__globals__["__doc__"] or "").partition("\n")[0]


def _limits(figures: list[dict[str, Any]]) -> str:
    rows = [(figure["name"], _value(figure["median"], figure["unit"]), figure["note"]) for figure in figures]
    return markdown_table(("limit", "median", ""), rows)


def _table(figures: list[dict[str, Any]], origin: str) -> str:
    head = ["figure", "reput", "the other", "times as fast", "goal", ""]
    rows = [_row(figure, origin) for figure in figures]
    kept = [i for i in range(len(head)) if any(row[i] for row in rows)]
    return markdown_table([head[i] for i in kept], [[row[i] for i in kept] for row in rows])


def _row(figure: dict[str, Any], origin: str) -> tuple[str, ...]:
    other = figure["other"]
    name = figure["name"] + (f" ({figure['note']})" if figure["note"] else "")
    goal = ", ".join(_goals(figure))
    return (
        name,
        _value(figure["median"], figure["unit"]) + _range(figure["values"]),
        f"{_value(other['median'], figure['unit'])}, {other['name']}" if other else "",
        _comparison(other) if other else "",
        f"{goal} ({origin})" if goal else "",
        _shown(_verdict(figure)),
    )


def _goals(figure: Mapping[str, Any]) -> Iterator[str]:
    goal, other = figure["goal"], figure["other"]
    if goal:
        sign, bound = ("≥", goal["least"]) if goal["least"] is not None else ("≤", goal["most"])
        yield f"{sign} {_value(bound, figure['unit'])}"
    if other and other["least"] is not None:
        yield f"≥ {other['least']:g} times"
    if other and other["most"] is not None:
        yield f"≤ {other['most']:g} of it"


def _verdict(figure: Mapping[str, Any]) -> str:
    """Verdict of the goals of a figure together; an empty text if it has none."""
    verdicts = [figure["met"], figure["other"]["met"] if figure["other"] else None]
    told = [verdict for verdict in verdicts if verdict is not None]
    return "" if not told else "met" if all(told) else "missed"


def _shown(verdict: str) -> str:
    return verdict.replace("missed", "**missed**")


def _comparison(other: Mapping[str, Any]) -> str:
    if other["most"] is not None:
        return f"{other['part']:.2f} of it"
    return f"{other['times']:.2f}{_range(other['rounds'])}"


def _range(values: list[float]) -> str:
    return f" ({format_value(min(values))} .. {format_value(max(values))})" if len(values) > 1 else ""


def _value(value: float, unit: str) -> str:
    return f"{format_value(value)} {unit}".rstrip()


if __name__ == "__main__":
    main()
