"""Texts to compare tokenizers on: pieces of many kinds, joined at random. All are bytes, some of
them no UTF-8."""

import random

from tokenizers_under_test import texts

RANGES = [
    (0x20, 0x7E),
    (0x20, 0x7E),
    (0x00, 0x1F),
    (0x80, 0xFF),
    (0x100, 0x24F),
    (0x250, 0x36F),
    (0x300, 0x36F),
    (0x370, 0x3FF),
    (0x400, 0x4FF),
    (0x590, 0x5FF),
    (0x600, 0x6FF),
    (0x900, 0x97F),
    (0x980, 0xDFF),
    (0xE00, 0xFFF),
    (0x1100, 0x11FF),
    (0x1680, 0x18FF),
    (0x1C80, 0x1EFF),
    (0x1E00, 0x1FFF),
    (0x2000, 0x206F),
    (0x2070, 0x2BFF),
    (0x2C00, 0x2FFF),
    (0x3000, 0x30FF),
    (0x3130, 0x33FF),
    (0x4E00, 0x9FFF),
    (0xA000, 0xABFF),
    (0xAC00, 0xD7A3),
    (0xF900, 0xFFFD),
    (0x10000, 0x10FFF),
    (0x11000, 0x12FFF),
    (0x1D400, 0x1D7FF),
    (0x1E000, 0x1EFFF),
    (0x1F300, 0x1FAFF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x323AF),
    (0xE0000, 0xE01EF),
]
SPECIALS = [
    "<|endoftext|>",
    "<|begin_of_text|>",
    "<|eot_id|>",
    "<|im_start|>",
    "<|im_end|>",
    "<think>",
    "</think>",
    "<s>",
    "</s>",
    "<unk>",
    "[MASK]",
    "[CLS]",
    "[UNK]",
    "<|startoftext|>",
    "Word",
    "word",
    "<|end",
    "<0x0A>",
    "<|startofTEXT|>",
]
SPACES = [
    " ",
    "  ",
    "    ",
    "\n",
    "\r\n",
    "\t",
    "\n\n",
    " \n ",
    "\u00a0",
    "\u3000",
    "\u2003",
    "\u180e",
    "\u200b",
    "\u2028",
    "\x85",
    " " * 17,
    "\n" * 9,
    "\u1680",
]
ODD = [
    "'s",
    "'S",
    "'t",
    "'ll",
    "'\u017f",
    "'LL",
    "\u017f",
    "\u212a",
    "İ",
    "ß",
    "ﬁ",
    "ﷺ",
    "½",
    "e\u0301",
    "é",
    "a\u0323\u0301",
    "a\u0301\u0323",
    "\u1100\u1161\u11a8",
    "각",
    "▁",
    "▁▁",
    "Ġ",
    "Ċ",
    "##",
    "</w>",
    "👨‍👩‍👧",
    "🏳️‍🌈",
    "\ufeff",
    "\u0300",
    "\u0344",
    "\u0958",
    "\u2126",
    "\u1e9b\u0323",
    "٣",
    "Ⅷ",
    "²",
    "௧",
    "\u0e33",
    "ﾊﾞ",
    "\u30cf\u309a",
    "\x00",
    "1234567",
    "3.14159",
    "don't",
    "I'VE",
    "\ufffd",
    "\U0001e900",
    "\U00010d50",
    "\u0897",
    "\U00031350",
]
BROKEN = [
    b"\xff",
    b"\xc3",
    b"\xe2\x82",
    b"\xf0\x9f\x98",
    b"\xed\xa0\x80",
    b"\xc0\xaf",
    b"\x80",
    b"\xf4\x90\x80\x80",
    b"\xe0\x80\xaf",
    b"\xf8\x88\x80\x80\x80",
    b"\xe2\x28\xa1",
]


class Texts:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.lines = [line for line in texts() if line.strip()]

    def piece(self):
        r = self.random
        kind = r.randrange(12)
        if kind < 3:
            line = r.choice(self.lines)
            begin = r.randrange(len(line))
            return line[begin : begin + r.randrange(1, 40)].encode()
        if kind < 6:
            first, last = r.choice(RANGES)
            return "".join(chr(r.randint(first, last)) for _ in range(r.randrange(1, 8))).encode()
        if kind == 6:
            return r.choice(SPECIALS).encode()
        if kind == 7:
            return r.choice(SPACES).encode()
        if kind == 8:
            return r.choice(ODD).encode()
        if kind == 9:
            c = r.randrange(0x110000)
            return b"" if 0xD800 <= c < 0xE000 else chr(c).encode()
        if kind == 10 and r.randrange(4) == 0:
            return r.choice(BROKEN)
        return r.choice(
            [" the", "a", "A", "ab", " x", "1", "12", ".", "!!", "\n", "def f():\n    return 1\n"]
        ).encode()

    def text(self):
        return b"".join(self.piece() for _ in range(self.random.choice([0, 1, 1, 2, 3, 4, 6, 10])))

    def many(self, count):
        return [self.text() for _ in range(count)]
