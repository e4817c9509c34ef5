"""The tables of header classes in docs/formats/remoting.md: `python -m tests.support.header_table` writes them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import is_dataclass
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import reput.remoting
from reput.remoting.header import Int32, Int64, header_fields
from reput.remoting.send_headers import V2_NAMES

PAGE = Path(__file__).parents[2] / "docs/formats/remoting.md"
_TYPES: dict[Any, str] = {Int32: "int32", Int64: "int64", bool: "bool", str: "text"}
_CLASSES = "<!-- header classes: python -m tests.support.header_table -->\n", "<!-- end of header classes -->"
_NAMES = "<!-- short names: python -m tests.support.header_table -->\n", "<!-- end of short names -->"


def header_classes() -> tuple[type[Any], ...]:
    """The dataclasses of the modules `reput.remoting.*_headers`; what else they define is no header."""
    names = [one.name for one in iter_modules(reput.remoting.__path__) if one.name.endswith("_headers")]
    return tuple(
        kind
        for module in (import_module(f"reput.remoting.{name}") for name in sorted(names))
        for kind in vars(module).values()
        if isinstance(kind, type) and is_dataclass(kind) and kind.__module__ == module.__name__
    )


def header_table() -> dict[str, dict[str, tuple[str, bool]]]:
    """Class -> field as on the wire -> (type, whether it is required)."""
    return {
        kind.__name__: {one.wire_name: (_TYPES[one.kind], one.is_required) for one in header_fields(kind)}
        for kind in header_classes()
    }


def every_field(**given: str) -> dict[str, str]:
    """All fields of all headers, short names too: a text is another one in each, each number 0, unless given."""
    names = {one.wire_name: one.kind for kind in header_classes() for one in header_fields(kind)}
    names |= {short: names.get(name, str) for short, name in V2_NAMES.items()}
    found = {name: f"%of-{name}" if kind is str else "true" if kind is bool else "0" for name, kind in names.items()}
    return found | given | {short: given[name] for short, name in V2_NAMES.items() if name in given}


def _class_rows() -> Iterator[str]:
    yield "| class | field | type | required |"
    yield "| --- | --- | --- | --- |"
    for name, found in header_table().items():
        for field, (kind, is_required) in found.items():
            yield f"| {name} | {field} | {kind} | {'yes' if is_required else 'no'} |"


def _name_rows() -> Iterator[str]:
    yield "| letter | field |"
    yield "| --- | --- |"
    yield from (f"| {letter} | {name} |" for letter, name in V2_NAMES.items())


def page_with_tables(page: str) -> str:
    """The page with the tables of the code."""
    for (begin, end), rows in ((_CLASSES, _class_rows()), (_NAMES, _name_rows())):
        before, _, rest = page.partition(begin)
        table = "\n".join(rows)
        page = f"{before}{begin}\n{table}\n\n{end}{rest.partition(end)[2]}"
    return page


if __name__ == "__main__":
    PAGE.write_text(page_with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
