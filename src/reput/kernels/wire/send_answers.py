"""Answers to sends, written by a kernel."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

from reput.formats.message_id import HOST_V4_DIGITS, OFFSET_DIGITS
from reput.formats.remoting import FRAME_HEAD_SIZE, LENGTH_SIZE
from reput.kernels.machine.decimals import put_decimal
from reput.kernels.machine.memory import copy_short, load_i32_native, load_u8, store_i32, store_u8
from reput.kernels.machine.shared_words import get, put
from reput.kernels.wire.remoting_header import H_OPAQUE
from reput.kernels.wire.send_words import (
    S_ANSWERED,
    S_ANSWERS,
    S_HANDLE,
    S_HANDLE_SIZE,
    S_HEADER,
    S_OUT_MS,
    S_SCRATCH,
    S_STORE_HOST_HEX,
    S_TEXT_ENDS,
    S_TEXTS,
    SIZES_AT,
    T_NAME,
    T_NAME_SIZE,
)

_COMMA, _BLANK, _PADDING = 0x2C, 0x20, 0x3D
_BASE64 = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", np.uint8)
#: What begins a handle, "v1 ", and the longest text that may follow its topic but for a time and a key.
HANDLE_VERSION_SIZE, MOST_HANDLE_TEXT = 3, 300


def answer_texts(fields: bytes, end: bytes) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32]]:
    """The texts of an answer between its values, one after the other, and where each ends."""
    texts = (
        b'{"code":0,"extFields":{"msgId":"',
        b'","queueId":"',
        b'","queueOffset":"',
        b'","transactionId":"',
        b'",' + fields + b'},"flag":1,"language":"JAVA","opaque":',
        end,
        b'","recallHandle":"',
    )
    ends = np.cumsum([0, *map(len, texts)]).astype(np.int32)
    return np.frombuffer(b"".join(texts), np.uint8), ends


@njit
def put_hex(t, value, digits):  # type: ignore[no-untyped-def]
    """Write a number in `digits` hexadecimal digits; returns the address after them."""
    for i in range(digits):
        digit = (value >> np.int64(4 * (digits - 1 - i))) & 15
        store_u8(t + i, digit + (48 if digit < 10 else 55))
    return t + digits


@njit
def _put_text(words, t, number):  # type: ignore[no-untyped-def]
    """Write one of the texts of `answer_texts`."""
    ends = get(words, S_TEXT_ENDS)
    begin, end = np.int64(load_i32_native(ends + 4 * number)), np.int64(load_i32_native(ends + 4 * number + 4))
    copy_short(t, get(words, S_TEXTS) + begin, end - begin)
    return t + end - begin


@njit
def _put_ids(words, t, offset, count):  # type: ignore[no-untyped-def]
    """Write the offset message ids of records that follow one another, joined by commas."""
    sizes = get(words, S_SCRATCH) + SIZES_AT
    for i in range(count):
        if i:
            store_u8(t, _COMMA)
            t += 1
        copy_short(t, get(words, S_STORE_HOST_HEX), HOST_V4_DIGITS)
        t = put_hex(t + HOST_V4_DIGITS, offset, OFFSET_DIGITS)
        if i + 1 < count:
            offset += np.int64(load_i32_native(sizes + 4 * i))
    return t


@njit
def _put_base64(t, p, size):  # type: ignore[no-untyped-def]
    """Write bytes in base64 with the letters of addresses, and its end; returns the address after them."""
    for i in range(0, size, 3):
        left = min(size - i, 3)
        word = np.int64(load_u8(p + i)) << 16
        if left > 1:
            word |= np.int64(load_u8(p + i + 1)) << 8
        if left > 2:
            word |= np.int64(load_u8(p + i + 2))
        for j in range(4):
            digit = word >> (18 - 6 * j) & 63
            store_u8(t + j, _BASE64[digit] if j <= left else _PADDING)
        t += 4
    return t


@njit
def _put_handle(words, t, topic, unique, unique_size):  # type: ignore[no-untyped-def]
    """Write the handle by which a message that waits for a time is recalled (`remoting.recall_handle`)."""
    text = get(words, S_SCRATCH) + SIZES_AT
    handle, name_size = get(words, S_HANDLE), get(topic, T_NAME_SIZE)
    copy_short(text, handle, HANDLE_VERSION_SIZE)
    p = text + HANDLE_VERSION_SIZE
    copy_short(p, get(topic, T_NAME), name_size)
    p += name_size
    copy_short(p, handle + HANDLE_VERSION_SIZE, get(words, S_HANDLE_SIZE) - HANDLE_VERSION_SIZE)
    p += get(words, S_HANDLE_SIZE) - HANDLE_VERSION_SIZE
    p = put_decimal(p, get(words, S_OUT_MS) + 1)  # after the slot's time, so that the recall gets the same slot
    store_u8(p, _BLANK)
    copy_short(p + 1, unique, unique_size)
    return _put_base64(t, text, p + 1 + unique_size - text)


@njit
def put_answer(  # type: ignore[no-untyped-def]
    words, topic, first, count, queue_id, queue_offset, unique, unique_size
):
    """Write the answer to a send whose records begin at log offset `first`."""
    out = get(words, S_ANSWERS) + get(words, S_ANSWERED)
    t = _put_ids(words, _put_text(words, out + FRAME_HEAD_SIZE, 0), first, count)
    t = put_decimal(_put_text(words, t, 1), queue_id)
    t = put_decimal(_put_text(words, t, 2), queue_offset)
    if unique_size:
        t = _put_text(words, t, 3)
        copy_short(t, unique, unique_size)
        t += unique_size
    if get(words, S_OUT_MS):
        t = _put_handle(words, _put_text(words, t, 6), topic, unique, unique_size)
    t = put_decimal(_put_text(words, t, 4), get(words, S_HEADER + H_OPAQUE))
    t = _put_text(words, t, 5)
    store_i32(out, t - out - LENGTH_SIZE)
    store_i32(out + LENGTH_SIZE, t - out - FRAME_HEAD_SIZE)
    put(words, S_ANSWERED, t - get(words, S_ANSWERS))
