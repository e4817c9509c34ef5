"""Pages of the site that are made from the code: commands, keys, columns, errors, the API; run by mkdocs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import mkdocs_gen_files
import typer

from reput.cli.main import app
from reput.config.broker import BrokerConfig
from reput.config.message_store import MessageStoreConfig
from reput.config.namesrv import NamesrvConfig
from reput.config.properties import camel_case
from reput.config.rocketmq_config import keys_of
from reput.kernels.records.record_batch import SCHEMA
from reput.spark import __all__ as spark_names

ROOT = Path(__file__).parents[1]
STORE = "reput.store.message_store.MessageStore"
#: The store's methods and properties for users, in the order in which one meets them.
METHODS = """
open
put_message put_messages put_batch put_arrow async_put_message wait_dispatched
get_message query_message query_messages view_message look_message_by_offset
tail
close
topics update_topic update_topics delete_topic_config
queues min_offset max_offset offset_by_time message_store_timestamp
min_commit_log_offset max_commit_log_offset flushed_offset confirm_offset earliest_time latest_time commit_log_data
dispatch_behind_bytes runtime_info topic_counts
delete_expired preload
"""
#: Those that brokers and followers are made of.
INSIDE = """
config get_raw find_pull look_records find_records units index_end topic_metadata change_retention replica_writer
loop_writer
"""


def write(name: str, text: str) -> None:
    """Make a page."""
    with mkdocs_gen_files.open(name, "w") as file:
        file.write(text)


def commands() -> str:
    """The help of each command, as a terminal of 90 columns shows it."""
    group = typer.main.get_command(app)
    parts = ["# Commands\n\nWhat `reput COMMAND --help` shows.\n"]

    def add(command: Any, path: str, depth: int) -> None:
        context = typer.Context(command, info_name=path, terminal_width=90, max_content_width=90)
        parts.append(f"{'#' * depth} {path}\n\n```text\n{command.get_help(context)}\n```\n")
        for name, one in getattr(command, "commands", {}).items():
            add(one, f"{path} {name}", 2 if path == "reput" else 3)

    add(group, "reput", 2)
    return "\n".join(parts)


def configuration() -> str:
    """The keys of each class of configuration, by RocketMQ's names."""
    parts = [
        "# Configuration\n\nRocketMQ's keys that reput knows. A key that nobody names has reput's default, with a "
        "broker.conf or without one; RocketMQ's is beside it if it is another. `reput config` shows both.\n"
    ]
    seen: set[str] = set()
    for heading, kind in (("Store", MessageStoreConfig), ("Broker", BrokerConfig), ("Name server", NamesrvConfig)):
        rows = []
        for name, key in keys_of(kind).items():
            if name in seen:
                continue
            unit = f" {key.metadata['unit']}" if key.metadata["unit"] else ""
            default, theirs = (_value(one, unit) for one in (key.default, key.metadata["rocketmq"]))
            if theirs != default:
                default = f"{default}; RocketMQ's: {theirs}"
            rows.append(f"| `{camel_case(name)}` | {default} | {_cell(key.metadata['doc'])} |")
        seen |= set(keys_of(MessageStoreConfig))
        parts.append(f"## {heading}\n\n| key | default | what it says |\n|---|---|---|\n" + "\n".join(rows) + "\n")
    return "\n".join(parts)


def _value(value: object, unit: str) -> str:
    """A default, as a broker.conf has it."""
    text = str(value).lower() if isinstance(value, bool) else value
    return "" if text in (None, "") else f"`{text}`{unit}"


def columns() -> str:
    """The columns of `read_log`."""
    rows = "\n".join(f"| `{field.name}` | `{field.type}` |" for field in SCHEMA)
    return (
        '# Columns\n\nThe columns of `reput.read_log`, of `spark.read.format("reput")` and of a tail\'s Arrow batches. '
        f"[Read a store](../spark.md) explains them.\n\n| column | Arrow's type |\n|---|---|\n{rows}\n"
    )


def api(title: str, *names: str, made_by_users: bool = True) -> str:
    """A page with the docstrings of some names; with how its classes are made, if users make them."""
    parts = []
    for name in names:
        options: dict[str, Any] = {"merge_init_into_class": made_by_users}
        if name == STORE:
            options["members"] = METHODS.split()
        parts.append(f"::: {name}\n    options: {json.dumps(options)}\n")
    return f"# {title}\n\n" + "\n".join(parts)


def notebook_page(notebook: Path, name: str) -> str:
    """The cells of a notebook with their stored outputs; its figures become files beside the page."""
    parts = []
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", []):
            if picture := "".join(output.get("data", {}).get("image/svg+xml", "")):
                write(f"{name}-{cell['id']}.svg", picture)
                parts.append(f"![What the cell above draws]({name}-{cell['id']}.svg)")
            else:
                parts.append(f"```text\n{''.join(output['text']).rstrip()}\n```")
    return "\n\n".join(parts) + "\n"


def repository_page(source: str) -> str:
    """A page of the repository's root, whose links lead to the site's pages."""
    text = (ROOT / source).read_text()
    text = text.replace("](docs/", "](").replace("](../docs/", "](../")
    for name, page in PAGES.items():
        text = text.replace(f"]({name}", f"]({page}")
    return _without_links_to_code(text)


def _without_links_to_code(text: str) -> str:
    """The site has no pages of code: such a link becomes its text."""
    return re.sub(r"\[([^\]]*)\]\((?!https?:|#)[^)]*?(?<!\.md)(?<!\.png)\)", _text_of_code, text)


def _text_of_code(match: re.Match[str]) -> str:
    return match[0] if ".md#" in match[0] else match[1]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def links_to_the_laboratory(page: Path) -> None:
    """Change a page of docs whose links lead to pages of lab, which is beside docs in the repository and in it here."""
    text, up = page.read_text(), "../" * len(page.relative_to(ROOT / "docs").parts)
    if f"]({up}lab/" in text:
        write(page.relative_to(ROOT / "docs").as_posix(), text.replace(f"]({up}lab/", f"]({up[3:]}lab/"))


PAGES = {"ARCHITECTURE.md": "architecture.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
for source_name, page_name in PAGES.items():
    write(page_name, repository_page(source_name))
for laboratory_page in (ROOT / "lab").glob("*.md"):
    write(f"lab/{laboratory_page.name}", repository_page(f"lab/{laboratory_page.name}"))
for written_page in (ROOT / "docs").rglob("*.md"):
    links_to_the_laboratory(written_page)
with mkdocs_gen_files.open("lab/soak.png", "wb") as picture_file:
    picture_file.write((ROOT / "lab/soak.png").read_bytes())
write("tutorial.md", notebook_page(ROOT / "examples/tutorial/tutorial.ipynb", "tutorial"))
write("reference/commands.md", commands())
write("reference/configuration.md", configuration())
write("reference/columns.md", columns())
write("reference/errors.md", "# Errors\n\n::: reput.errors\n    options: {show_root_heading: false}\n")
write(
    "reference/store.md",
    api(
        "The store", STORE, "reput.store.tail.Tail", "reput.log.datasets.read_log.read_log",
        "reput.formats.message.Message", "reput.formats.message_ext.MessageExt",
        "reput.store.reads.get_result.GetMessageResult", "reput.store.results", "reput.formats.metadata.TopicConfig",
        "reput.config.message_store_options.MessageStoreOptions", "reput.broker.embedded.Broker",
        "reput.config.broker_options.BrokerOptions",
        made_by_users=False,
    ),
)  # fmt: skip
write(
    "reference/client.md",
    api(
        "The client", "reput.client.producing.producer.Producer", "reput.client.consuming.push_consumer.PushConsumer",
        "reput.client.consuming.pull_consumer.PullConsumer", "reput.client.sync",
        "reput.client.instance.message_client_ext.MessageClientExt", "reput.client.instance.send_result.SendResult",
        "reput.client.instance.session_credentials.SessionCredentials", "reput.transport.tls.ClientTls",
    ),
)  # fmt: skip
write(
    "reference/jobs.md",
    api(
        "Jobs",
        *(f"reput.jobs.{room}" for room in "archive audit backup diff lake query rebuild repair statistics".split()),
    ),
)
write("reference/testing.md", api("Tests", "reput.testing.local_broker"))
write("reference/spark.md", api("Spark", *(f"reput.spark.{name}" for name in spark_names)))
