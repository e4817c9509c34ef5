"""Parser of a broker.conf, and conversion between the two spellings of a key.

The grammar is that of `java.util.Properties.load`, with which RocketMQ's `BrokerStartup` reads a broker.conf: `#` and
`!` begin a comment; the first `=`, `:` or blank ends a key; a backslash escapes, and at the end of a line it continues
the line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from reput.errors import ConfigError

_BLANKS = " \t\f"
_LINE_END = re.compile(r"\r\n|\n|\r")
_KEY_END = re.compile(r"(?:[^\\=: \t\f]|\\.)*", re.DOTALL)
_SEPARATOR = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_CONTROL_NAMES = {character: name for name, character in _CONTROL.items()}
_ESCAPED, _ESCAPED_IN_KEYS = re.compile(r"[\\\t\n\r\f]|^ "), re.compile(r"[\\\t\n\r\f =:#!]")
_WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
#: Words that RocketMQ writes in capitals inside the keys that reput uses.
_CAPITALS = {"crc": "CRC", "ip1": "IP1"}
#: Keys of TLS have points in their names.
_TLS_PREFIX = re.compile(r"tls_(server_|client_|)")
_TLS_AUTH = "tls_server_need_client_auth"


class Property(NamedTuple):
    """One key of a properties text: the number of its first line (from 1), its name and its value."""

    line: int
    name: str
    value: str


def read_properties(text: str, source: str) -> Iterator[Property]:
    """The keys of a properties text in order, including repeated keys.

    Raises ConfigError, with `source` and the line, for a malformed Unicode escape and for a line without a key; the
    error quotes no text, which may be a password.
    """
    for line, content in _logical_lines(text.removeprefix("\ufeff")):  # the byte order mark of an editor
        name_end = _KEY_END.match(content).end()  # type: ignore[union-attr]  # both patterns match the empty text
        value_begin = _SEPARATOR.match(content, name_end).end()  # type: ignore[union-attr]
        location = f"{source}:{line}"
        name = _unescape(content[:name_end], location)
        if not name:
            raise ConfigError(f"{location}: no key before the value; write key=value")
        yield Property(line, name, _unescape(content[value_begin:], location))


def parse_properties(text: str, source: str) -> dict[str, str]:
    """The keys and values of a properties text; of a repeated key the last value wins, as in Java.

    Raises ConfigError, with `source` (the name of the file) and the line.
    """
    return {entry.name: entry.value for entry in read_properties(text, source)}


def format_properties(properties: Mapping[str, str]) -> str:
    """The properties text of keys and values, sorted by key: the inverse of `parse_properties`."""
    lines = (f"{_escape(name, _ESCAPED_IN_KEYS)}={_escape(value)}\n" for name, value in sorted(properties.items()))
    return "".join(lines)


def change_properties(text: str, source: str, changes: Mapping[str, str]) -> str:
    """A properties text with other values for some keys; all other lines stay, comments too.

    Raises ConfigError, as `read_properties`, for a text that cannot be read.
    """
    lines = _LINE_END.split(text)
    begins = [entry.line - 1 for entry in read_properties(text, source) if entry.name in changes]
    for begin in reversed(begins):
        end = begin + 1
        while end < len(lines) and _is_continued(lines[end - 1]):
            end += 1
        del lines[begin:end]
    kept = "\n".join(lines).rstrip("\n")
    return (kept + "\n" if kept else "") + format_properties(changes)


def split_folders(text: str) -> tuple[str, ...]:
    """The folders of a `storePathCommitLog`, separated by commas (MixAll.MULTI_PATH_SPLITTER)."""
    return tuple(dict.fromkeys(stripped.strip() for stripped in text.split(",") if stripped.strip()))


def snake_case(name: str) -> str:
    """Python's spelling of RocketMQ's key: `checkCRCOnRecover` becomes `check_crc_on_recover`.

    Points become underscores, too: `tls.server.mode` becomes `tls_server_mode`.
    """
    return _WORD_START.sub("_", name.replace(".", "_")).lower()


def camel_case(name: str) -> str:
    """Inverse of `snake_case` for every key that reput uses."""
    if name == _TLS_AUTH:
        return name.replace("_", ".")
    if prefix := _TLS_PREFIX.match(name):
        return prefix[0].replace("_", ".") + camel_case(name[prefix.end() :])
    first, *others = name.split("_")
    return first + "".join(_CAPITALS.get(word, word.capitalize()) for word in others)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """(number of the first line, content) of each line that is no comment and not blank; continued lines are joined."""
    begun = 0
    content = ""
    for number, line in enumerate(_LINE_END.split(text), start=1):
        stripped = line.lstrip(_BLANKS)
        if not begun:
            if not stripped or stripped[0] in "#!":
                continue
            begun = number
        content += stripped
        if _is_continued(stripped):
            content = content[:-1]
            continue
        yield begun, content
        begun, content = 0, ""
    if content:
        yield begun, content


def _is_continued(line: str) -> bool:
    """Whether a line ends with a backslash that escapes the line's end."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _escape(text: str, escaped: re.Pattern[str] = _ESCAPED) -> str:
    return escaped.sub(lambda match: "\\" + _CONTROL_NAMES.get(match[0], match[0]), text)


def _unescape(text: str, location: str) -> str:
    def character(match: re.Match[str]) -> str:
        code = match[1]
        if len(code) == 5:
            return chr(int(code[1:], 16))
        if code == "u":
            raise ConfigError(f"{location}: \\u without four hexadecimal digits; a backslash is written as \\\\")
        return _CONTROL.get(code, code)

    # Java writes a character above U+FFFF as two escapes, its UTF-16 halves.
    return _ESCAPE.sub(character, text).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
