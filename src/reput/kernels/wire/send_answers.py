"""Answers to sends, written by a kernel."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

from reput.kernels.machine.blocks import get, put
from reput.kernels.machine.decimals import put_decimal
from reput.kernels.machine.memory import copy_short, load_i32_native, store_i32, store_u8
from reput.kernels.wire.remoting_header import H_OPAQUE
from reput.kernels.wire.send_block import (
    B_ANSWERED,
    B_ANSWERS,
    B_HEADER,
    B_SCRATCH,
    B_STORE_HOST_HEX,
    B_TEXT_ENDS,
    B_TEXTS,
    SIZES_AT,
)

_COMMA = 0x2C


def answer_texts(fields: bytes, end: bytes) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32]]:
    """The texts of an answer between its values, one after the other, and where each ends."""
    texts = (
        b'{"code":0,"extFields":{"msgId":"',
        b'","queueId":"',
        b'","queueOffset":"',
        b'","transactionId":"',
        b'",' + fields + b'},"flag":1,"language":"JAVA","opaque":',
        end,
    )
    ends = np.cumsum([0, *map(len, texts)]).astype(np.int32)
    return np.frombuffer(b"".join(texts), np.uint8), ends


@njit
def put_hex(t, value, digits):  # type: ignore[no-untyped-def]
    """Write a number in so many hexadecimal digits; returns the address after them."""
    for i in range(digits):
        digit = (value >> np.int64(4 * (digits - 1 - i))) & 15
        store_u8(t + i, digit + (48 if digit < 10 else 55))
    return t + digits


@njit
def _put_text(block, t, number):  # type: ignore[no-untyped-def]
    """Write one of the texts of `answer_texts`."""
    ends = get(block, B_TEXT_ENDS)
    begin, end = np.int64(load_i32_native(ends + 4 * number)), np.int64(load_i32_native(ends + 4 * number + 4))
    copy_short(t, get(block, B_TEXTS) + begin, end - begin)
    return t + end - begin


@njit
def _put_ids(block, t, offset, count):  # type: ignore[no-untyped-def]
    """Write the offset message ids of records that follow one another, joined by commas."""
    sizes = get(block, B_SCRATCH) + SIZES_AT
    for i in range(count):
        if i:
            store_u8(t, _COMMA)
            t += 1
        copy_short(t, get(block, B_STORE_HOST_HEX), 16)
        t = put_hex(t + 16, offset, 16)
        if i + 1 < count:
            offset += np.int64(load_i32_native(sizes + 4 * i))
    return t


@njit
def put_answer(block, first, count, queue_id, queue_offset, unique, unique_size):  # type: ignore[no-untyped-def]
    """Write the answer to a send whose records begin at log offset `first`."""
    out = get(block, B_ANSWERS) + get(block, B_ANSWERED)
    t = _put_ids(block, _put_text(block, out + 8, 0), first, count)
    t = put_decimal(_put_text(block, t, 1), queue_id)
    t = put_decimal(_put_text(block, t, 2), queue_offset)
    if unique_size:
        t = _put_text(block, t, 3)
        copy_short(t, unique, unique_size)
        t += unique_size
    t = put_decimal(_put_text(block, t, 4), get(block, B_HEADER + H_OPAQUE))
    t = _put_text(block, t, 5)
    store_i32(out, t - out - 4)
    store_i32(out + 4, t - out - 8)
    put(block, B_ANSWERED, t - get(block, B_ANSWERS))
