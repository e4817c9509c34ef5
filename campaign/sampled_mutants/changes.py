"""The small changes that a sample is drawn from: comparisons turned, bounds moved by one, checks and calls dropped."""

from __future__ import annotations

import ast
import hashlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).parents[2] / "src"
LAYERS = ("formats", "kernels", "log", "jobs", "store", "spark")

_TURNED = {
    ast.Eq: "!=", ast.NotEq: "==", ast.Lt: ">=", ast.GtE: "<", ast.Gt: "<=", ast.LtE: ">",
    ast.In: "not in", ast.NotIn: "in", ast.Is: "is not", ast.IsNot: "is",
}  # fmt: skip
_MOVED = {ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">"}
_LEAVES = (ast.Raise, ast.Return, ast.Continue, ast.Break)


class Change(NamedTuple):
    """One small change of one source file."""

    #: Below src, as in `reput/log/scan.py`.
    path: str
    #: The function around it, as in `Scanner.scan`; an empty text at module level.
    function: str
    kind: str
    #: The line (the first of several) without and with the change, stripped.
    before: str
    after: str
    #: Tells changes apart that look the same in one function.
    occurrence: int
    #: From 1: where the statement around the change begins, and where the change is.
    statement_line: int
    line: int
    #: Where the changed text begins and ends in the source, in bytes, and what takes its place.
    begin: int
    end: int
    text: str

    @property
    def key(self) -> tuple[str, str, str, str, str, int]:
        """What names this change for as long as its line and its function keep their texts."""
        return self[:6]

    @property
    def layer(self) -> str:
        """Name of the layer that is changed."""
        return self.path.split("/")[1]

    def rank(self, seed: int) -> bytes:
        """Its place in the random order of a seed; it stays where code around it changes."""
        return hashlib.sha256(repr((seed, *self.key)).encode()).digest()


def sample(seed: int, of_each_layer: int) -> list[Change]:
    """The first changes of each layer in the order of a seed."""
    return [
        change
        for layer in LAYERS
        for change in sorted(changes_of_layer(layer), key=lambda one: one.rank(seed))[:of_each_layer]
    ]


def changes_of_layer(layer: str) -> Iterator[Change]:
    for path in sorted((SOURCE / "reput" / layer).rglob("*.py")):
        yield from changes_of(str(path.relative_to(SOURCE)), path.read_text())


def changes_of(path: str, source: str) -> list[Change]:
    """All changes of one source file, in the order of its lines."""
    lines = source.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line.encode()))
    data = source.encode()
    seen: Counter[tuple[str, ...]] = Counter()
    changes = []
    for function, statement, kind, begin_at, end_at, text in _edits(ast.parse(source), "", 1, data, starts):
        row = max(i for i, start in enumerate(starts) if start <= begin_at)
        changed = data[starts[row] : begin_at] + text.encode() + data[end_at:]
        look = (path, function, kind, lines[row].strip(), changed.decode().partition("\n")[0].strip())
        changes.append(Change(*look, seen[look], statement, row + 1, begin_at, end_at, text))
        seen[look] += 1
    return changes


#: Function, line of the statement, kind, begin and end in bytes, new text.
_Edit = tuple[str, int, str, int, int, str]


def _edits(node: ast.AST, function: str, statement: int, data: bytes, starts: list[int]) -> Iterator[_Edit]:
    """The edits below a node; nothing in annotations, decorators and code for type checkers."""

    def span(part: ast.expr | ast.stmt) -> tuple[int, int]:
        assert part.end_lineno is not None
        assert part.end_col_offset is not None
        return starts[part.lineno - 1] + part.col_offset, starts[part.end_lineno - 1] + part.end_col_offset

    if isinstance(node, ast.stmt):
        statement = node.lineno
    match node:
        case ast.If(test=ast.Name("TYPE_CHECKING")):
            return
        case ast.If(test=test, body=[*_, last]) if isinstance(last, _LEAVES):
            yield (function, statement, "check dropped", *span(test), "False")
        case ast.Expr(value=ast.Call()):
            yield (function, statement, "call dropped", *span(node), "pass")
        case ast.JoinedStr():  # before Python 3.12, nodes in it have wrong positions
            return
        case ast.Compare(left=left, ops=operators, comparators=rights):
            for operator, one, other in zip(operators, (left, *rights), rights, strict=False):
                begin, end = span(one)[1], span(other)[0]
                # Brackets around an operand are no part of its node.
                sign = data[begin:end].strip(b"() \n\t")
                begin = data.index(sign, begin, end)
                yield function, statement, "comparison turned", begin, begin + len(sign), _TURNED[type(operator)]
                if type(operator) in _MOVED:
                    yield function, statement, "bound moved by one", begin, begin + len(sign), _MOVED[type(operator)]
        case ast.Constant(value=int() as value) if not isinstance(value, bool):
            yield (function, statement, "bound moved by one", *span(node), str(value + 1))
    for name, field in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list"):
            continue
        for child in field if isinstance(field, list) else [field]:
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                inner = f"{function}.{child.name}" if function else child.name
                yield from _edits(child, inner, statement, data, starts)
            elif isinstance(child, ast.AST):
                yield from _edits(child, function, statement, data, starts)
