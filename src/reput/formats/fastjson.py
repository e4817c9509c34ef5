"""Reader and writer of RocketMQ's JSON files, byte for byte as fastjson 1.2.83 (docs/formats/metadata.md).

The format differs from standard JSON: whole numbers as keys have no quotes, and an object that occurs twice is written
once, with `{"$ref":"$.path"}` at its other occurrences. A value here is None, bool, int, float, str, dict (keys str, or
int if there were no quotes), list (one item a line, Java's List) or tuple (all items on one line, Java's sets and
arrays). What was read is written again byte for byte, except that references are replaced by their values.
"""

from __future__ import annotations

import json
import re
from math import isfinite
from typing import Any, NoReturn

from reput.errors import CorruptMetadataError

_TOKEN = re.compile(
    r'[ \t\r\n]*(?:(?P<mark>[{}\[\]:,])|(?P<text>"(?:[^"\\]++|\\.)*+")'
    r"|(?P<number>-?\d{1,40}(?P<fraction>\.\d{1,400})?(?P<exponent>[eE][-+]?\d{1,9})?)|(?P<word>true|false|null)\b|(?P<end>\Z))",
    re.DOTALL,
)
_WORDS = {"true": True, "false": False, "null": None}
_MAX_DEPTH = 100
_REFERENCE = "$ref"
#: What the standard library's decoder does not tell as the reader does: lists by their lines, references, and numbers
#: of any length. It takes a fifteenth of the reader's time: with 30,000 topics a new one took seconds without it.
_LEFT_TO_READER = re.compile(r"[\[$\\]|\d{41}|[eE][-+]?\d{10}")
#: References to references can make any number of values: this number is allowed, and more for each byte of the text.
_MOST_VALUES, _MOST_VALUES_A_BYTE = 100_000, 20
_STEP = re.compile(r"\.((?:[^\\.\[]|\\.)*)|\[(-?\d+)\]", re.DOTALL)
_ESCAPED = re.compile('["\\\\\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]')
_SHORT_ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def _refuse_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is no value")


_loads = json.JSONDecoder(strict=False, parse_constant=_refuse_constant).decode


def decode_fastjson(data: bytes) -> Any:
    """The value of a file's bytes; of a repeated key the last value wins.

    Raises CorruptMetadataError (path '', the position in bytes) if the bytes are not in this format, or cut short.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise CorruptMetadataError("", error.start, f"expected UTF-8, found byte {data[error.start]:#04x}") from None
    if _LEFT_TO_READER.search(text) is None:
        try:
            plain = _loads(text)
        except (ValueError, RecursionError):
            pass  # the reader below takes more than JSON, and says where a text is wrong
        else:
            if _depth_fits(plain):
                return plain
    reader = _Reader(text)
    value = reader.value(0)
    kind, found = reader.take()
    if kind != "end":
        reader.refuse("the end of the file", found)
    return _Resolver(value, len(data)).resolve(value, 0) if reader.has_references else value


def _depth_fits(value: Any) -> bool:
    """Whether objects are at most _MAX_DEPTH levels deep."""
    level = [value]
    for _ in range(_MAX_DEPTH + 1):
        level = [one for parent in level if isinstance(parent, dict) for one in parent.values()]
        if not level:
            return True
    return False


class _Reader:
    """Recursive descent parser; strings are tokens, so nothing inside a string is parsed."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0
        self.start = 0
        self.has_references = False

    def refuse(self, expected: str, found: str) -> NoReturn:
        """Raise CorruptMetadataError for the token that was taken last."""
        position = len(self.text[: self.start].encode("utf-8", "surrogatepass"))
        what = repr(found[:40]) if found else "the end of the file"
        raise CorruptMetadataError("", position, f"expected {expected}, found {what}")

    def take(self) -> tuple[str, str]:
        """(kind, text) of the next token."""
        match = _TOKEN.match(self.text, self.position)
        if match is None:
            rest = self.text[self.position :].lstrip()
            self.start = len(self.text) - len(rest)
            self.refuse("a value", rest)
        kind = match.lastgroup
        assert kind is not None
        if kind in ("fraction", "exponent"):
            kind = "number"
        self.start, self.position = match.start(kind), match.end()
        return kind, match[kind]

    def value(self, depth: int) -> Any:
        """The value at the current position."""
        kind, found = self.take()
        return self.value_of(kind, found, depth)

    def value_of(self, kind: str, found: str, depth: int) -> Any:
        """The value that begins with this token."""
        if depth > _MAX_DEPTH:
            self.refuse(f"at most {_MAX_DEPTH} levels", found)
        if kind == "text":
            return self.string(found)
        if kind == "number":
            return int(found) if found.lstrip("-").isdigit() else float(found)
        if kind == "word":
            return _WORDS[found]
        if found == "{":
            return self.members(depth)
        if found == "[":
            return self.items(depth)
        self.refuse("a value", found)

    def string(self, quoted: str) -> str:
        """The text of a string in quotes."""
        try:
            text: str = json.loads(quoted, strict=False)
        except json.JSONDecodeError:
            self.refuse("a string", quoted)
        return text

    def members(self, depth: int) -> dict[str | int, Any]:
        """An object; its opening brace is taken already."""
        found: dict[str | int, Any] = {}
        kind, text = self.take()
        if text == "}" and kind == "mark":
            return found
        while True:
            if kind != "text" and not (kind == "number" and text.lstrip("-").isdigit()):
                self.refuse("a key", text)
            key = self.string(text) if kind == "text" else int(text)
            self.mark(":")
            found[key] = self.value(depth + 1)
            if self.mark(",", "}") == "}":
                break
            kind, text = self.take()
        self.has_references = self.has_references or _REFERENCE in found
        return found

    def items(self, depth: int) -> list[Any] | tuple[Any, ...]:
        """An array; its opening bracket is taken already."""
        on_lines = self.text[self.position : self.position + 1] == "\n"
        found: list[Any] = []
        kind, text = self.take()
        if text == "]" and kind == "mark":
            return found
        while True:
            found.append(self.value_of(kind, text, depth + 1))
            if self.mark(",", "]") == "]":
                return found if on_lines else tuple(found)
            kind, text = self.take()

    def mark(self, *expected: str) -> str:
        """Take the next token, which must be one of these marks."""
        kind, found = self.take()
        if kind != "mark" or found not in expected:
            self.refuse(" or ".join(map(repr, expected)), found)
        return found


class _Resolver:
    """Replaces references by the values that they name."""

    def __init__(self, root: Any, size: int) -> None:
        self._root = root
        self._most = self._left = _MOST_VALUES + _MOST_VALUES_A_BYTE * size

    def resolve(self, value: Any, depth: int) -> Any:
        """A value without references."""
        self._left -= 1
        if self._left < 0:
            raise CorruptMetadataError("", 0, f"its references make more than {self._most} values")
        if isinstance(value, dict):
            path = value.get(_REFERENCE)
            if len(value) == 1 and isinstance(path, str):
                if depth > _MAX_DEPTH:
                    raise CorruptMetadataError("", 0, f"the reference {path!r} leads to itself")
                return self.resolve(self._find(path), depth + 1)
            return {key: self.resolve(one, depth + 1) for key, one in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(self.resolve(one, depth + 1) for one in value)
        return value

    def _find(self, path: str) -> Any:
        """The value at a path from the root: `.name` (with a backslash before special characters) and `[3]`."""
        value, position = self._root, 1
        while path.startswith("$") and position < len(path):
            step = _STEP.match(path, position)
            if step is None:
                break
            name, number = step.groups()
            key = int(number) if name is None else re.sub(r"\\(.)", r"\1", name, flags=re.DOTALL)
            try:
                value = value[key]
            except (LookupError, TypeError):
                break
            position = step.end()
        if position < len(path) or not path.startswith("$"):
            raise CorruptMetadataError("", 0, f"the reference {path!r} names nothing in this file")
        return value


def encode_fastjson(value: Any) -> bytes:
    """The bytes that `JSON.toJSONString(value, true)` gives; members in the order of the dict."""
    return _text_of(value, "\n").encode()


def _text_of(value: Any, line: str) -> str:
    """Text of a value; `line` is the line break and indentation of its parent."""
    inner = line + "\t"
    match value:
        case dict():
            if not value:
                return "{}"
            members = ((_key_text(key, inner), _text_of(one, inner)) for key, one in value.items())
            return "{" + ",".join([key + ":" + text for key, text in members]) + line + "}"
        case list():
            return "[" + ",".join([inner + _text_of(one, inner) for one in value]) + (line if value else "") + "]"
        case tuple():
            return "[" + ",".join([_text_of(one, line) for one in value]) + "]"
        case str():
            return _quote(value)
        case float() if not isfinite(value):
            return "null"
        case bool():
            return "true" if value else "false"
        case int():
            return int.__repr__(value)
        case None | float():
            return json.dumps(value)
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def _key_text(key: str | int, line: str) -> str:
    return line + _quote(key) if isinstance(key, str) else str(key)


def _quote(text: str) -> str:
    return '"' + _ESCAPED.sub(lambda match: _SHORT_ESCAPES.get(match[0]) or f"\\u{ord(match[0]):04X}", text) + '"'
