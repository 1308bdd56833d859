"""Writes the tokenizers of tokenizers_under_test.py to *.json, and what the reference gives on
random texts to goldens.bin. Run with Python that has `tokenizers`; takes a minute.

goldens.bin, all numbers 32-bit little-endian: the number of texts; each as a size and bytes; the
number of tokenizers; for each a name (size, bytes) and per text a checksum: FNV-1a of its answer in
the form that testing/encode_stream.cc writes.
"""

import json
import pathlib
import struct
import sys

import tokenizers
from compare_with_reference import reference
from fuzz_texts import Texts
from tokenizers_under_test import ALL

TEXTS = 2000
HERE = pathlib.Path(__file__).resolve().parent


def answer(tokenizer, data):
    ids, offsets, *decoded = reference(tokenizer, data)
    out = struct.pack(f"<{1 + len(ids)}i", len(ids), *ids)
    out += b"".join(struct.pack("<ii", *pair) for pair in offsets)
    for text in decoded:
        out += struct.pack("<i", len(text.encode())) + text.encode()
    return out


def fnv(data):
    value = 0x811C9DC5
    for byte in data:
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return value


def main():
    for name in sys.argv[1:] or ALL:
        document = ALL[name]()
        (HERE / f"{name}.json").write_text(
            json.dumps(document, ensure_ascii=False, separators=(",", ":"))
        )
    texts = Texts(20261201).many(TEXTS)
    out = struct.pack("<i", len(texts)) + b"".join(struct.pack("<i", len(t)) + t for t in texts)
    out += struct.pack("<i", len(ALL))
    for name in ALL:
        tokenizer = tokenizers.Tokenizer.from_file(str(HERE / f"{name}.json"))
        out += struct.pack("<i", len(name)) + name.encode()
        out += b"".join(struct.pack("<I", fnv(answer(tokenizer, text))) for text in texts)
    (HERE / "goldens.bin").write_bytes(out)


if __name__ == "__main__":
    main()
