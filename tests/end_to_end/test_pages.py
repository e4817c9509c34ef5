"""The examples of the documentation run as they stand, and print what the pages say that they print."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support import page_worlds
from tests.support.commands import run_reput, unknown_words
from tests.support.page_worlds import World
from tests.support.pages import (
    FENCED,
    ROOT,
    Block,
    Cells,
    Reader,
    blocks,
    is_what_the_page_shows,
    needs_spark,
    start_cells,
)
from tests.support.shares import sampled
from tests.support.shop import make_shop

#: Pages of the site that are files: those of docs, and those of lab.
PAGES = {
    **{path.relative_to(ROOT / "docs").as_posix(): path for path in sorted((ROOT / "docs").rglob("*.md"))},
    **{path.relative_to(ROOT).as_posix(): path for path in sorted((ROOT / "lab").glob("*.md"))},
}
#: Pages whose blocks are bytes and JSON of files, which tests/unit/formats and tests/unit/remoting compare.
BYTES = "formats/"
#: Where to cut a page whose examples do not go on with the results of those before; any other page is one part.
CUTS = {"export.md": "\n## "} | dict.fromkeys(
    [f"client/{name}.md" for name in ("README", "consumers", "producer", "testing")], "```python\n"
)
#: What a page, or a part of it, finds before its first example.
WORLDS: dict[str, Callable[[World], None]] = {
    "access.md": page_worlds.users,
    "admin.md": page_worlds.broker_with_a_lag,
    "archive.md": page_worlds.shop,
    "backup.md": page_worlds.shop,
    "broker.md": page_worlds.free_ha_port,
    "export.md": page_worlds.shop,
    "export.md-import": page_worlds.files,
    "follow.md": page_worlds.master,
    "index.md": page_worlds.store_of_a_reader,
    "lazy-scans.md": page_worlds.two_stores_one_in_memory,
    "spark-cluster.md": page_worlds.shop,
    "spark.md": page_worlds.two_stores,
    "spark-sink.md": page_worlds.other_store,
    "spark-streaming.md": page_worlds.shop,
    "spark-wire.md": page_worlds.broker_with_orders,
    "sql.md": page_worlds.shop,
    "tables.md": page_worlds.shop,
    "upgrade.md": page_worlds.shop_and_broker,
    "jobs/audit.md": page_worlds.shop,
    "jobs/diff.md": page_worlds.copies,
    "jobs/dispatch.md": page_worlds.shop,
    "jobs/rebuild.md": page_worlds.shop,
    "jobs/repair.md": page_worlds.shop,
    "jobs/replay.md": page_worlds.shop,
    "jobs/stats.md": page_worlds.shop,
    "client/README.md": page_worlds.broker_with_topics,
    "client/consumers.md": page_worlds.broker,
    "client/consumers.md-4": page_worlds.broker_with_a_dead_letter,
    "client/fastapi.md": page_worlds.broker_for_fastapi,
    "client/producer.md": page_worlds.broker,
    "client/tasks.md": page_worlds.broker,
}
#: These start several processes.
SLOW = ("access.md", "broker.md", "secure.md", "client/README.md-2")
#: Pages with Spark whose examples start processes in a folder of their own, as a reader does; others share one.
ALONE = ("tour.md",)
#: Kinds of blocks that no page runs, and why.
OTHER = {
    "java": "tests/interop and test_readme.py run clients in Java",
    "go": "tests/interop runs clients in Go",
    "js": "tests/interop runs clients in Node",
    "dockerfile": "no containers here",
    "crontab": "a line of cron's; test_deploy.py runs such commands",
    "json": "an offset of Spark's, which tests/spark look at",
}
#: Examples that do not run here, by their first words, and why.
NOT_RUN: dict[str, dict[str, str]] = {
    "*": {
        "pip install": "changes the environment",
        "mqadmin ": "Apache's own; tests/interop and tests/unit/broker/admin run its commands",
        "python -m lab.bench": "measures for minutes",
    },
    "access.md": {"openssl ": "the tests make certificates of their own"},
    "admin.md": {
        "reput: there is no topic": "lines of stderr, which tests/unit/cli/commands/admin/test_admin.py compares",
        "reput admin forget-broker": "tests/unit/cli/test_away.py loses brokers, and runs it",
        "reput: the master of": "a line of stderr, which tests/unit/cli/test_away.py compares",
        "reput: nobody answers for": "a line of stderr, which tests/unit/cli/test_away.py compares",
    },
    "archive.md": {
        "reput archive /data/store /mnt/archive --follow": "goes on until Ctrl-C",
        "reput restore": "the page's store has no sealed file; tests/unit/jobs/archive restores archives",
    },
    "backup.md": {
        "reput backup /data/store s3://": "needs a bucket",
        "install ": "changes the machine",
        "systemctl ": "changes the machine; test_deploy.py runs the commands of the unit",
    },
    "broker.md": {
        "curl ": "tests/unit/broker/metrics ask it",
        "echo ": "for Apache's proxy",
        "python3 -m venv /opt/reput": "changes the machine",
        "/opt/reput/bin/pip ": "changes the machine",
        "install ": "changes the machine",
        "systemctl ": "changes the machine; test_deploy.py starts the commands of the units",
        "bin/mqproxy": "Apache's own; tests/interop starts it",
        "time=2026": "lines of stderr, which tests/unit/cli/display/test_logs.py compares",
    },
    "grpc.md": {"import rocketmq": "tests/interop/test_grpc_clients.py runs it, with packages of Apache's client"},
    "client/README.md": {
        "a pull failed": "lines of stderr, which tests/unit/client/instance/test_peer_log.py compares",
        "reput consume orders --group billing --tags 'paid || shipped' --follow": "goes on until Ctrl-C",
    },
    "client/testing.md": {"- run: ": "no workflows of GitHub here"},
    "commands.md": {"[audit]": "test_the_defaults_of_the_page_are_taken has it"},
    "containers.md": {
        "podman ": "no containers here; test_deploy.py starts the image's command",
        "BROKER_HOST=": "no containers here; test_deploy.py starts the services' commands",
        "docker compose ": "no containers here",
        "pip wheel": "tests/packaging/test_wheel.py makes the wheel",
    },
    "lab/reliability.md": {"make campaign": "takes hours", "python -m lab.campaign": "takes hours"},
    "export.md": {
        "reput export /data/store /data/orders --decode protobuf": "tests/unit/jobs/lake has bodies of Protobuf",
        "reput export /data/store /data/tables --format delta --follow": "goes on until Ctrl-C",
        "DIR/messages": "names of files, which tests/unit/jobs/lake compares",
    },
    "follow.md": dict.fromkeys(
        (
            "reput follow /data/copy --master broker:10911  ",
            "reput follow /data/copy --master broker:10911 --from newest",
            "reput follow /data/copies --namesrv names:9876",
        ),
        "goes on until Ctrl-C",
    ),
    "index.md": {
        "reput tail STORE": "goes on until Ctrl-C",
        "reput export STORE lake --decode json --follow": "goes on until Ctrl-C",
    },
    "jobs/dispatch.md": {
        "reput dispatch /data/store --output /data/replica  ": "goes on until Ctrl-C",
        "reput dispatch /data/store  ": "the same",
    },
    "jobs/replay.md": {"reput replay /data/store /data/replayed --topics": "takes minutes"},
    "slaves.md": dict.fromkeys(
        ("reput namesrv", "reput broker", "503 copies nothing"), "two machines; tests/unit/broker/slave/test_slave.py"
    ),
    "several-brokers.md": {
        "sh examples/": "tests/end_to_end/test_several_brokers.py runs it",
        "pkill ": "ends what others started",
    },
    "spark-cluster.md": {
        "from reput.spark import session": "needs a cluster: tests/cluster",
        "from pyspark.sql import SparkSession": "needs a server: tests/spark/connect",
    },
    "tables.md": {
        "reput export /data/store /data/iceberg --decode json --format iceberg --new-fields": "goes on until Ctrl-C",
        "reput export /data/store /mnt/tables --decode json --format iceberg --runner spark --master": "a cluster",
        "spark.sql.catalog.reput ": "for Spark 4.1; tests/interop/test_iceberg.py has these settings",
        "select sum(body.total)": "the same, and such queries",
    },
    "upgrade.md": {
        "python3 -m venv": "changes the machine",
        "/opt/reput-2026-12-01/": "changes the machine",
        "[ -L /opt/reput ] ": "changes the machine",
        "readlink /opt/reput": "asks what the line before has made",
        "ln ": "changes the machine",
        "systemctl ": "changes the machine",
        "curl ": "tests/unit/broker/metrics ask it",
    },
    "tail.md": {"reput tail build/tail --topic orders ": "goes on until Ctrl-C"},
    "tour.md": {
        "mvn ": "test_readme.py runs it",
    },
}


def parts() -> Iterator[tuple[str, str, list[Block]]]:
    """Each page or part of a page: page, name of the part, blocks."""
    for page, path in PAGES.items():
        if page.startswith(BYTES):
            continue
        text = path.read_text(encoding="utf-8")
        cut = CUTS.get(page)
        if cut is None:
            yield page, page, blocks(text)
            continue
        for number, part in enumerate(text.split(cut)):
            is_code = cut.startswith("```")
            name = str(number) if is_code else part.partition("\n")[0].strip("# ")
            yield page, f"{page}-{name}", blocks(cut + part if is_code and number else part)


PARTS = {name: (page, found) for page, name, found in parts() if found}


def reason(page: str, example: str) -> str | None:
    """Why a block or a command does not run here."""
    listed = NOT_RUN["*"] | NOT_RUN.get(page, {})
    return next((why for words, why in listed.items() if f"{example}  ".startswith(words)), None)


def runs(page: str, block: Block) -> Block | None:
    """A block, or what runs of it."""
    if block.language == "sh":
        commands = [command for command in block.commands if reason(page, command) is None]
        output = block.output if commands == block.commands else None
        return block._replace(text="\n".join(commands), output=output) if commands else None
    return None if block.language in OTHER or reason(page, block.text) else block


def without_spark(block: Block, before: list[Block]) -> Block | None:
    """A block, or what of it needs no Spark. What follows a program on Spark goes on with it."""
    if block.language == "python":
        return None if any(one.language == "python" and one.needs_spark for one in [*before, block]) else block
    if block.language != "sh":
        return block
    commands = [command for command in block.commands if not needs_spark(command)]
    output = block.output if commands == block.commands else None
    return block._replace(text="\n".join(commands), output=output) if commands else None


RUN = {name: [one for block in found if (one := runs(page, block))] for name, (page, found) in PARTS.items()}
PLAIN = {
    name: [plain for number, block in enumerate(found) if (plain := without_spark(block, found[:number]))]
    for name, found in RUN.items()
}
#: What runs with Spark, and what comes before it, which Spark's examples may go on with. The rest runs without Spark.
WITH_SPARK = {
    name: found[: max(number for number, block in enumerate(found, 1) if block not in PLAIN[name])]
    for name, found in RUN.items()
    if found != PLAIN[name]
}


def run_part(
    name: str, found: list[Block], folder: Path, patch: pytest.MonkeyPatch, shared: Cells | None = None
) -> None:
    page, _ = PARTS[name]
    with ExitStack() as left:
        world = World(folder, left)
        for root in ("/data", "/mnt", "/brokers", "/etc/reput"):
            world.names[root] = str(folder / root[1:])
        world.names["10.0.0.5"] = "127.0.0.1"
        WORLDS.get(name, WORLDS.get(page, lambda world: None))(world)
        for key, value in world.environment.items():
            patch.setenv(key, value)
        patch.chdir(folder)
        reader = Reader(world, shared)
        for block in found:
            printed = reader.run(block)
            if block.output is not None:
                assert is_what_the_page_shows(block.output, printed), f"{block.text}prints\n{printed}"


def in_order(examples: dict[str, list[Block]]) -> list[Any]:
    """Names of parts, those that take long with their marker."""
    return [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in examples]


@sampled(2)
@pytest.mark.parametrize("name", in_order({name: found for name, found in PLAIN.items() if found}))
def test_the_examples_of_a_page_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_part(name, PLAIN[name], tmp_path, monkeypatch)


@pytest.fixture(scope="module")
def spark_cells(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cells]:
    """The process that pages with Spark share. Its JVM stays; a page has a context of Spark's of its own."""
    with start_cells(tmp_path_factory.mktemp("cells")) as cells:
        yield cells


@pytest.mark.spark
@pytest.mark.parametrize("name", in_order(WITH_SPARK))
def test_the_examples_of_a_page_run_with_spark(
    name: str, spark_cells: Cells, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_part(name, WITH_SPARK[name], tmp_path, monkeypatch, None if name in ALONE else spark_cells)


@pytest.mark.spark
def test_a_page_finds_nothing_of_the_one_before(spark_cells: Cells) -> None:
    begin = "from reput.spark import session\nspark = session('local[2]')\n"
    spark_cells.run(f"{begin}spark.conf.set('spark.sql.shuffle.partitions', 7)\nspark.range(1).createTempView('seen')")
    spark_cells.begin_page()
    with pytest.raises(AssertionError, match="this fails"):
        spark_cells.run("print(spark)")
    found = f"{begin}print(spark.conf.get('spark.sql.shuffle.partitions'), spark.catalog.listTables())"
    assert spark_cells.run(found) == "2 []\n"


def test_every_block_runs_or_is_listed() -> None:
    """A block without a label, or of a kind that nobody runs, has to say why it does not run."""
    strange = [
        (name, block.language, block.text)
        for name, found in RUN.items()
        for block in found
        if block.language not in ("python", "sh") and block.file is None
    ]
    assert strange == []


def test_every_reason_is_one_of_a_block_that_is_there() -> None:
    examples = [
        (page, f"{example}  ")
        for page, found in PARTS.values()
        for block in found
        for example in (block.commands if block.language == "sh" else [block.text])
    ]
    unused = [
        (page, words)
        for page, listed in NOT_RUN.items()
        for words in listed
        if not any(page in ("*", of) and example.startswith(words) for of, example in examples)
    ]
    assert unused == []
    assert set(OTHER) == {block.language for _, found in PARTS.values() for block in found} & set(OTHER)


def test_no_example_is_hidden_in_an_indented_block() -> None:
    """But those of docs/spark-cluster.md, which tests/cluster types, and of docs/design and lab, which take minutes."""
    for page, _, _ in parts():
        if page != "spark-cluster.md" and not page.startswith(("design/", "lab/")):
            prose = FENCED.sub("", PAGES[page].read_text(encoding="utf-8"))
            assert re.findall(r"\n\n    (?:reput|python|pip|import|from|mqadmin) .*", prose) == [], page


@pytest.mark.parametrize("page", PAGES)
def test_commands_and_options_within_sentences_are_there(page: str) -> None:
    prose = FENCED.sub("", PAGES[page].read_text(encoding="utf-8"))
    commands = re.findall(r"`(reput [a-z-][^`\[]*)`", prose)
    assert [(command, words) for command in commands if (words := unknown_words(command))] == []


def test_a_page_that_shows_something_else_is_noticed() -> None:
    (block,) = blocks("```python\nprint(1)\n```\n\nIt prints:\n\n```text\n1 at 2026-11-26T11:00:00Z\n...\n```\n")
    assert block == Block("python", "print(1)\n", "1 at 2026-11-26T11:00:00Z\n...\n")
    assert block.output is not None
    assert is_what_the_page_shows(block.output, "1   at 2027-01-01T00:00:00.123Z\nmore\n")
    assert not is_what_the_page_shows(block.output, "2 at 2027-01-01T00:00:00.123Z\nmore\n")
    assert not is_what_the_page_shows("1\n", "1\n2\n")


def test_the_defaults_of_the_page_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (block,) = [block for block in PARTS["commands.md"][1] if block.language == "toml"]
    (tmp_path / "config.toml").write_text(block.text)
    monkeypatch.setenv("REPUT_DEFAULTS", str(tmp_path / "config.toml"))
    store = make_shop(tmp_path / "store")
    assert run_reput("audit", store).status == 0
    (tmp_path / "config.toml").write_text(block.text.replace("runner", "rumner"))
    assert "rumner" in run_reput("audit", store).err
