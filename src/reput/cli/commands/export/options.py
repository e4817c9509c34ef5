"""Options of `reput export` that no other command has."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from reput.cli.options import check_path

Output = Annotated[str, typer.Argument(metavar="DIR", callback=check_path, help="The folder to export to.")]
Columns = Annotated[
    str | None, typer.Option("--columns", metavar="LIST", help="Only these columns, and the origin of a row.")
]
Decode = Annotated[
    Literal["raw", "utf8", "json", "avro", "protobuf"],
    typer.Option("--decode", help="Write bodies as bytes, as text, or as typed fields."),
]
Schemas = Annotated[
    list[str],
    typer.Option(
        "--schema",
        metavar="[TOPIC=]FIELDS",
        help="Of all JSON bodies, or a topic's: 'id bigint, price double'; may be repeated. Else inferred.",
        default_factory=list,
        show_default=False,
    ),
]
SchemaFiles = Annotated[
    list[str],
    typer.Option(
        "--schema-file",
        metavar="[TOPIC=]FILE",
        help="Of all Avro or Protobuf bodies, or a topic's: FILE.avsc or FILE.desc:MESSAGE; may be repeated.",
        default_factory=list,
        show_default=False,
    ),
]
NewFields = Annotated[
    Literal["reject", "add"],
    typer.Option("--new-fields", help="Of JSON bodies whose schema is inferred: reject the row, or add a column."),
]
Compact = Annotated[
    int,
    typer.Option("--compact", min=0, metavar="N", help="Put the small files of a table's day together from N on."),
]
RetainHours = Annotated[
    float,
    typer.Option("--retain-hours", min=0, metavar="N", help="With --compact: older snapshots go, and their files."),
]
Strict = Annotated[
    bool, typer.Option("--strict", help="Refuse a body that cannot be decoded, instead of rejecting its row.")
]
Format = Annotated[
    Literal["parquet", "delta", "iceberg", "csv", "jsonl"],
    typer.Option("--format", help="Files of Parquet, CSV or JSON lines; or of Parquet, and tables over them."),
]
Catalog = Annotated[
    str | None,
    typer.Option("--catalog", metavar="NAME", help="Of Iceberg tables, by pyiceberg's configuration. Else in DIR."),
]
Namespace = Annotated[str, typer.Option("--namespace", metavar="NAME", help="Of Iceberg tables in the catalog.")]
TargetFileBytes = Annotated[int, typer.Option("--target-file-bytes", min=1, metavar="N", help="Merge smaller files.")]
Follow = Annotated[bool, typer.Option("--follow", help="Export new messages until Ctrl-C.")]
AllowDataLoss = Annotated[
    bool,
    typer.Option(
        "--allow-data-loss",
        help="Continue after messages that were deleted before their export, and without lost files of tables.",
    ),
]
Damaged = Annotated[
    Literal["refuse", "skip"],
    typer.Option("--damaged", help="Refuse a damaged log, or export its whole records."),
]
