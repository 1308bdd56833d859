"""Counts the colours of a PNG picture; prints how many and the share of the commonest."""

import collections
import struct
import sys
import zlib


def chunks(data):
    assert data[:8] == b"\x89PNG\r\n\x1a\n", "no PNG"
    at = 8
    while at < len(data):
        (size,) = struct.unpack(">I", data[at:at + 4])
        yield data[at + 4:at + 8], data[at + 8:at + 8 + size]
        at += 12 + size


def unfilter(kind, line, above, width):
    """Undoes a line's filter in place; `width` is the bytes of a pixel."""
    if kind == 1:
        for i in range(width, len(line)):
            line[i] = (line[i] + line[i - width]) & 255
    elif kind == 2:
        for i, up in enumerate(above):
            line[i] = (line[i] + up) & 255
    elif kind == 3:
        for i, up in enumerate(above):
            left = line[i - width] if i >= width else 0
            line[i] = (line[i] + (left + up) // 2) & 255
    elif kind == 4:
        for i, up in enumerate(above):
            left, corner = (line[i - width], above[i - width]) if i >= width else (0, 0)
            guess = left + up - corner
            a, b, c = abs(guess - left), abs(guess - up), abs(guess - corner)
            line[i] = (line[i] + (left if a <= b and a <= c else up if b <= c else corner)) & 255


def main():
    with open(sys.argv[1], "rb") as file:
        parts = list(chunks(file.read()))
    width, height, depth, kind, _, _, interlace = struct.unpack(">IIBBBBB", parts[0][1])
    assert depth == 8 and kind in (2, 6) and interlace == 0, "no plain 8-bit RGB picture"
    size = 3 if kind == 2 else 4
    raw = zlib.decompress(b"".join(data for name, data in parts if name == b"IDAT"))
    counts = collections.Counter()
    above = bytes(width * size)
    for row in range(height):
        begin = row * (width * size + 1)
        line = bytearray(raw[begin + 1:begin + 1 + width * size])
        unfilter(raw[begin], line, above, size)
        counts.update(zip(*(line[i::size] for i in range(3))))
        above = bytes(line)
    print(len(counts), max(counts.values()) / (width * height))


if __name__ == "__main__":
    main()
