"""Numbers and names of the protocol have one home, `formats` or `remoting`: what is typed again is noticed, as far as
one can tell.
"""

from __future__ import annotations

import ast
import struct
from collections.abc import Iterator, Mapping
from enum import Enum
from importlib import import_module
from pathlib import Path

import pytest

import reput

SOURCE = Path(reput.__file__).parent
#: Smaller numbers stand for too much else, and so do sizes of memory, masks and bounds of integers, and powers of ten.
LEAST = 256
COMMON = {
    *(2**n for n in (*range(8, 21), 31, 63)),
    *(2**n - 1 for n in (8, 16, 31, 32, 63, 64)),
    *(10**n for n in range(3, 19)),
}
#: Shorter texts are words of everybody's.
SHORTEST = 4
#: What a text has to be turned into before a kernel compares it. A first part of a name counts, too.
PARTS = (8, 4)


def format_constants(layer: str = "formats") -> dict[int | str, str]:
    """Public numbers and texts of `formats`, or of `remoting`, and where each comes from."""
    found: dict[int | str, str] = {}
    for path in sorted((SOURCE / layer).glob("[a-z]*.py")):
        module = import_module(f"reput.{layer}.{path.stem}")
        for name in assigned(ast.parse(path.read_text())):
            value = getattr(module, name)
            value = value.format if isinstance(value, struct.Struct) else value
            value = value.decode("latin-1") if isinstance(value, bytes) else value
            if not name.startswith("_") and isinstance(value, int | str) and tells_itself(value):
                found.setdefault(value, f"{layer}.{path.stem}.{name}")
        for name, kind in vars(module).items():
            if isinstance(kind, type) and issubclass(kind, Enum) and kind.__module__ == module.__name__:
                for member in kind:
                    if isinstance(member.value, int | str) and tells_itself(member.value):
                        found.setdefault(member.value, f"{layer}.{path.stem}.{name}.{member.name}")
    return found


def assigned(tree: ast.Module) -> Iterator[str]:
    """Names that a module gives values itself, and does not import."""
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                yield from (name.id for name in ast.walk(target) if isinstance(name, ast.Name))


def tells_itself(value: int | str) -> bool:
    """Whether nobody types this value by chance."""
    if isinstance(value, str):
        return len(value) >= SHORTEST and not value.islower()
    return abs(value) >= LEAST and abs(value) not in COMMON


def typed_again(
    tree: ast.AST, constants: Mapping[int | str, str], parts: tuple[int, ...] = PARTS
) -> Iterator[tuple[int, str]]:
    """(line, constant) of each number or text in a module that a format has; docstrings do not count."""
    texts_of_formats = {
        text[:size]: name
        for text, name in constants.items()
        if isinstance(text, str)
        for size in (len(text), *parts)
        if tells_itself(text[:size])
    }
    texts = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or id(node) in texts:
            continue
        value = node.value.decode("latin-1") if isinstance(node.value, bytes) else node.value
        known = texts_of_formats if isinstance(value, str) else constants
        if isinstance(value, int | str) and not isinstance(value, bool) and value in known:
            yield node.lineno, known[value]
        if isinstance(value, int) and -value in constants:
            yield node.lineno, constants[-value]


def test_kernels_type_no_constant_of_a_format_again() -> None:
    constants = format_constants()
    found = {
        f"{path.relative_to(SOURCE)}:{line}: take {name}"
        for path in (SOURCE / "kernels").rglob("*.py")
        for line, name in typed_again(ast.parse(path.read_text()), constants)
    }
    assert found == set()


#: Numbers below say too little outside of kernels: three digits are seconds, or a count. Above are sizes and codes.
LEAST_OF_ALL = 1000
#: The bounds of a Java short, which code of the protocol masks with.
COMMON_OF_ALL = {2**15 - 1}
#: `config` has the defaults of RocketMQ's keys as texts and numbers, as its documentation has them. `formats` is a
#: home, and kernels have a rule of their own.
NOT_ASKED = ("formats", "kernels", "config")


def test_no_layer_types_a_number_or_a_name_of_the_protocol_again() -> None:
    of_formats, of_all = (
        {
            value: name
            for value, name in constants.items()
            if isinstance(value, str) or (abs(value) >= LEAST_OF_ALL and value not in COMMON_OF_ALL)
        }
        for constants in (format_constants(), format_constants("remoting") | format_constants())
    )
    layers = {path: path.relative_to(SOURCE).parts[0] for path in SOURCE.rglob("*.py")}
    found = {
        f"{path.relative_to(SOURCE)}:{line}: take {name}"
        for path, layer in layers.items()
        if layer not in NOT_ASKED
        for line, name in typed_again(
            ast.parse(path.read_text()), of_formats if layer == "remoting" else of_all, parts=()
        )
    }
    assert found == set()


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("_MAGIC = -626843477", "formats.record_layout.MagicCode.MESSAGE_V2"),
        ("_SEND = 310", "formats.remoting.SEND_MESSAGE_V2"),
        ('_TAGS = int.from_bytes(b"TAGS", "big")', "formats.properties.TAGS"),
        ('_NAME = int.from_bytes(b"INNER_NU", "big")', "formats.properties.INNER_NUM"),
        ("if size > 16_777_216: pass", "formats.remoting.MAX_FRAME_SIZE"),
    ],
)
def test_what_is_typed_again_is_noticed(text: str, name: str) -> None:
    assert [found for _, found in typed_again(ast.parse(text), format_constants())] == [name]


@pytest.mark.parametrize("text", ["size = 1024", "x = 8", 'names = ("topic", "body")', '"""TAGS of a record."""'])
def test_what_everybody_may_type_is_not(text: str) -> None:
    assert list(typed_again(ast.parse(text), format_constants())) == []
