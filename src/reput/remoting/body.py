"""JSON bodies of commands: compact, as fastjson writes and reads them."""

from __future__ import annotations

import json
from typing import Any, TypeVar

from reput.errors import CorruptMetadataError, RemotingCommandError
from reput.formats.fastjson import decode_fastjson
from reput.formats.java_bean import decode_bean, encode_bean
from reput.remoting.codes import ResponseCode

_T = TypeVar("_T")

_dumps = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_loads = json.JSONDecoder(strict=False).decode


def encode_body(value: Any) -> bytes:
    """The body of a dataclass instance (members by name, null left out), or of plain values.

    Whole numbers as keys are written in quotes, which all clients read; RocketMQ leaves the quotes out.
    """
    return _dumps(encode_bean(value)).encode("utf-8", "replace")


class _SlowDecoder(json.JSONDecoder):
    """Reads a tenth of what compiled code does, and gives the interpreter lock away, which that keeps for 0.3 s."""

    def __init__(self) -> None:
        super().__init__(strict=False)
        self.parse_object, self.parse_array = json.decoder.JSONObject, json.decoder.JSONArray  # type: ignore[attr-defined]
        self.scan_once = json.scanner.py_make_scanner(self)  # type: ignore[attr-defined]


_loads_slowly = _SlowDecoder().decode


def decode_json(body: bytes, *, is_beside: bool = False) -> Any:
    """The plain value of a body, also with whole numbers as keys without quotes.

    is_beside: It may be large, and is decoded in a thread beside others that must not stand still.

    Raises RemotingCommandError (SYSTEM_ERROR) if it is no JSON.
    """
    try:
        return (_loads_slowly if is_beside else _loads)(body.decode("utf-8", "replace"))
    except RecursionError:
        raise RemotingCommandError(ResponseCode.SYSTEM_ERROR, "the body has too many levels") from None
    except ValueError:
        pass
    try:
        return decode_fastjson(body)
    except CorruptMetadataError as error:
        remark = f"the body is no JSON: at byte {error.offset}: {error.reason}"
        raise RemotingCommandError(ResponseCode.SYSTEM_ERROR, remark) from None


def decode_body(kind: type[_T], body: bytes) -> _T:
    """An instance of a dataclass from a body, without members that it does not have (`others`).

    Errors as of `decode_json`, also for members of other types.
    """
    return decode_value(kind, decode_json(body))


def decode_value(kind: type[_T], value: Any) -> _T:
    """An instance of a dataclass from the plain value of a body; errors as of `decode_body`."""
    try:
        return decode_bean(kind, value, keeps_others=False)
    except CorruptMetadataError as error:
        raise RemotingCommandError(ResponseCode.SYSTEM_ERROR, f"{kind.__name__}: {error.reason}") from None
    except RecursionError:
        raise RemotingCommandError(ResponseCode.SYSTEM_ERROR, f"{kind.__name__}: too many levels") from None
