"""The text of a broker.conf, and the two spellings of a key.

The grammar is that of `java.util.Properties.load`, which RocketMQ's `BrokerStartup` reads a broker.conf with: `#` and
`!` begin a comment, the first `=`, `:` or blank ends a key, a backslash escapes, and at the end of a line it continues
the line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from reput.errors import ConfigError

_BLANKS = " \t\f"
_LINE_END = re.compile(r"\r\n|\n|\r")
_KEY_END = re.compile(r"(?:[^\\=: \t\f]|\\.)*", re.DOTALL)
_SEPARATOR = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
#: Words that RocketMQ writes in capitals inside a key that reput honours.
_CAPITALS = {"crc": "CRC", "ip1": "IP1"}


class Property(NamedTuple):
    """One key of a properties text: the line (from 1) on which it begins, its name and its value."""

    line: int
    name: str
    value: str


def read_properties(text: str, source: str) -> Iterator[Property]:
    """The keys of a properties text in order, doubled ones included.

    Raises ConfigError, with `source` and the line, for a malformed Unicode escape and for a line without a key.
    """
    for line, content in _logical_lines(text):
        name_end = _KEY_END.match(content).end()  # type: ignore[union-attr]  # both patterns match the empty text
        value_begin = _SEPARATOR.match(content, name_end).end()  # type: ignore[union-attr]
        place = f"{source}:{line}"
        name = _unescape(content[:name_end], place)
        if not name:
            raise ConfigError(f"{place}: no key before {content[:20]!r}; write key=value")
        yield Property(line, name, _unescape(content[value_begin:], place))


def parse_properties(text: str, source: str) -> dict[str, str]:
    """The keys and values of a properties text; the last of a doubled key wins, as in Java.

    Raises ConfigError, with `source` (the name of the file) and the line.
    """
    return {entry.name: entry.value for entry in read_properties(text, source)}


def split_folders(text: str) -> tuple[str, ...]:
    """The folders that a `storePathCommitLog` names, which a comma separates (MixAll.MULTI_PATH_SPLITTER)."""
    return tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def snake_case(name: str) -> str:
    """RocketMQ's key as reput spells it in Python: `checkCRCOnRecover` becomes `check_crc_on_recover`."""
    return _WORD_START.sub("_", name).lower()


def camel_case(name: str) -> str:
    """The inverse of `snake_case` for every key that reput honours."""
    first, *others = name.split("_")
    return first + "".join(_CAPITALS.get(word, word.capitalize()) for word in others)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines without comments and blank ones, continued lines joined; each with the number of its first line."""
    begun = 0
    content = ""
    for number, line in enumerate(_LINE_END.split(text), start=1):
        part = line.lstrip(_BLANKS)
        if not begun:
            if not part or part[0] in "#!":
                continue
            begun = number
        content += part
        if (len(part) - len(part.rstrip("\\"))) % 2:
            content = content[:-1]
            continue
        yield begun, content
        begun, content = 0, ""
    if content:
        yield begun, content


def _unescape(text: str, place: str) -> str:
    def character(match: re.Match[str]) -> str:
        code = match[1]
        if len(code) == 5:
            return chr(int(code[1:], 16))
        if code == "u":
            raise ConfigError(f"{place}: {text[match.start() : match.start() + 6]!r} is no \\uXXXX escape")
        return _CONTROL.get(code, code)

    # Java writes a character beyond U+FFFF as two escapes, its UTF-16 halves.
    return _ESCAPE.sub(character, text).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
