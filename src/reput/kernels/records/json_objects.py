"""Check of JSON bodies: each must be one closed object, so that many bodies can be parsed as one text.

A parser that reads one object after the other does not see where a body ends: half an object and its rest in the next
body would be one row, and two objects in one body would be two. A body that is one closed object has neither fault.
"""

from __future__ import annotations

import numpy as np

from reput.kernels.machine.jit import kernel
from reput.kernels.machine.memory import load_i32_native, load_u8

#: Faults that `find_json_faults` writes for a text; 0: one object, as far as brackets and strings show.
EMPTY, NO_OBJECT, UNFINISHED, MORE_AFTER, CONTROL_BYTE, NOT_FINITE, TOO_DEEP = 1, 2, 3, 4, 5, 6, 7
#: Most objects and lists within each other. Parsers, types of columns and writers of files recur for each of them: with
#: some hundreds they end in errors, with thousands in a stack overflow.
MOST_LEVELS = 32

_QUOTE, _BACKSLASH, _SPACE = 0x22, 0x5C, 0x20
_OPEN_BRACE, _CLOSE_BRACE, _OPEN_BRACKET, _CLOSE_BRACKET = 0x7B, 0x7D, 0x5B, 0x5D
#: Begins of NaN and Infinity, which parsers take for numbers; outside of strings JSON has no such letters.
_N, _I = 0x4E, 0x49
_TAB, _LINE_FEED, _CARRIAGE_RETURN = 0x09, 0x0A, 0x0D


@kernel("int64(int64, int64, uint8[::1])")
def find_json_faults(texts, offsets, faults):  # type: ignore[no-untyped-def]
    """Mark the texts that are not exactly one JSON object with blanks around it.

    Args:
        texts: Address of the bytes.
        offsets: Address of native int32[n + 1], the begins of the texts and the last end.
        faults: uint8[n], takes the fault of each text, or 0.

    Returns:
        The number of faulty texts.
    """
    marked = 0
    for row in range(faults.size):
        at, end = texts + load_i32_native(offsets + 4 * row), texts + load_i32_native(offsets + 4 * row + 4)
        depth, is_string, is_closed, fault = 0, False, False, EMPTY
        while at < end:
            byte = load_u8(at)
            at += 1
            if is_string:
                if byte == _QUOTE:
                    is_string = False
                elif byte == _BACKSLASH:
                    at += 1
                elif byte < _SPACE:
                    fault = CONTROL_BYTE
                    break
            elif byte <= _SPACE:
                if byte not in (_SPACE, _LINE_FEED, _TAB, _CARRIAGE_RETURN):
                    fault = CONTROL_BYTE
                    break
            elif is_closed:
                fault = MORE_AFTER
                break
            elif depth == 0:
                if byte != _OPEN_BRACE:
                    fault = NO_OBJECT
                    break
                depth, fault = 1, UNFINISHED
            elif byte == _QUOTE:
                is_string = True
            elif byte in (_N, _I):
                fault = NOT_FINITE
                break
            elif byte in (_OPEN_BRACE, _OPEN_BRACKET):
                depth += 1
                if depth > MOST_LEVELS:
                    fault = TOO_DEEP
                    break
            elif byte in (_CLOSE_BRACE, _CLOSE_BRACKET):
                depth -= 1
                if depth == 0:
                    is_closed, fault = True, 0
        faults[row] = np.uint8(fault)
        marked += fault != 0
    return marked
