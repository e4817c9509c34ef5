"""Target of the kernels that a wheel brings: x86-64-v2, and the multiplication of CRCs (`crc32.py`).

The two texts are what `NUMBA_CPU_NAME` and `NUMBA_CPU_FEATURES` are when a wheel is built.
"""

TARGET = "x86-64-v2"
TARGET_FEATURES = (
    "+64bit,+cmov,+crc32,+cx16,+cx8,+fxsr,+mmx,+pclmul,+popcnt,+sahf,+sse,+sse2,+sse3,+sse4.1,+sse4.2,+ssse3"
)
#: What a processor must have, by LLVM's names.
NEEDED = frozenset(feature[1:] for feature in TARGET_FEATURES.split(","))
