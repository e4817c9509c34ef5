import json
from pathlib import Path

import numpy as np
import pytest

from reput.formats.java import string_hash
from reput.kernels.machine.java_hash import java_hash_slices
from reput.kernels.queues.index_search import split_index_keys, topic_hash

VECTORS = json.loads((Path(__file__).parents[3] / "golden" / "vectors.json").read_text(encoding="utf-8"))


def hash_of(data, state=0):
    """The kernel's hash of bytes at the end of a buffer with other bytes before."""
    buffer, hashes = np.frombuffer(b"\xffab" + data, np.uint8), np.empty(1, np.int32)
    java_hash_slices(np.uint32(state), buffer.ctypes.data, np.array([3]), np.array([len(data)]), hashes)
    return int(hashes[0])


@pytest.mark.parametrize("vector", VECTORS["javaHashCode"], ids=lambda vector: ascii(vector["s"])[:30])
def test_hashes_are_those_that_java_computed(vector):
    assert hash_of(vector["s"].encode()) == vector["hashCode"]
    text, hashes = np.frombuffer(vector["s"].encode() + b"!", np.uint8), np.empty(1, np.int32)
    offsets, table = np.empty(2, np.int32), np.zeros(4, np.int32)
    assert split_index_keys(np.uint32(0), text.ctypes.data, text.size - 1, offsets, hashes, table) == 1
    assert hashes.tolist() == [vector["indexHash"]]


def test_every_length_is_hashed_whole():
    text = "".join(chr(33 + i % 90) for i in range(100))
    for size in range(len(text)):
        assert hash_of(text[:size].encode()) == string_hash(text[:size])


def test_a_hash_goes_on_from_the_state_of_the_text_before():
    for before, text in (("topic#", "key"), ("topic#", "订单🚀" * 9), ("订单#", "x" * 40), ("polygenelubricants", "")):
        assert hash_of(text.encode(), string_hash(before) & 0xFFFFFFFF) == string_hash(before + text)
    assert int(topic_hash("订单".encode())) == string_hash("订单#") & 0xFFFFFFFF


BROKEN = """
    80 bf c080 c1bf c2 c261 dfbf e08080 e09fbf e0a0 e0a080 e282 e28261 e228a1 ed9fbf eda080 edbfbf efbfbd efbf
    f0808080 f08fbfbf f09080 f0908080 f09f9a f09f9a61 f09f f0 f48fbfbf f4908080 f5808080 f888808080 fe ffff
    f09f9af09f9a80 e282e282ac
""".split()


@pytest.mark.parametrize("digits", BROKEN)
def test_each_broken_piece_counts_as_one_replacement_character(digits):
    data = bytes.fromhex(digits)
    for content in (data, data + b"a", b"a" * 15 + data, data * 3, b"a" * 16 + data + b"b" * 16):
        assert hash_of(content) == string_hash(content.decode("utf-8", "replace"))


def test_all_pairs_of_bytes_are_decoded_as_python_does():
    pairs = [bytes((a, b)) for a in range(0x7E, 0x100) for b in range(0x70, 0x100)]
    texts = [pair + tail for pair in pairs for tail in (b"", b"\x80\x80")]
    sizes = np.array([len(text) for text in texts], np.int64)
    hashes, buffer = np.empty(len(texts), np.int32), np.frombuffer(b"".join(texts), np.uint8)
    java_hash_slices(np.uint32(0), buffer.ctypes.data, np.cumsum(sizes) - sizes, sizes, hashes)
    assert hashes.tolist() == [string_hash(text.decode("utf-8", "replace")) for text in texts]
