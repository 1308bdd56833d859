"""Writes ../unicode_tables.cc: where the reference implementation's Unicode data differs from that
of PCRE2 10.42 and utf8proc 2.8, and its character classes, all asked from it.

Run with Python that has `tokenizers`; needs libpcre2-8.so.0 and libutf8proc.so. Takes a minute.
"""

import ctypes
import pathlib

import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers

ALL = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
PCRE = ctypes.CDLL("libpcre2-8.so.0")
PCRE.pcre2_compile_8.restype = ctypes.c_void_p
PCRE.pcre2_match_data_create_8.restype = ctypes.c_void_p
UTF8PROC = ctypes.CDLL("libutf8proc.so")
UTF8PROC.utf8proc_map.restype = ctypes.c_ssize_t
UTF8PROC.utf8proc_tolower.restype = ctypes.c_int32
STABLE, COMPAT, COMPOSE, DECOMPOSE = 2, 4, 8, 16
UTF, UCP, NO_CHECK = 0x00080000, 0x00020000, 0x40000000

# Characters that every version knows, by general category, in three and in four bytes of UTF-8.
STAND_INS = {
    "Lu": (0x2C00, 0x10400),
    "Ll": (0x2C30, 0x10428),
    "Lm": (0xA60C, 0x16B40),
    "Lo": (0xA500, 0x10280),
    "Mn": (0xA802, 0x10A01),
    "Mc": (0xA823, 0x11000),
    "Nd": (0xA620, 0x104A0),
    "Nl": (0x2160, 0x10140),
    "No": (0x2460, 0x10107),
    "Po": (0xA60D, 0x10100),
    "Pd": (0x2E1A, 0x10EAD),
    "Ps": (0x2E22, None),
    "Pe": (0x2E23, None),
    "So": (0x2400, 0x10137),
    "Sm": (0x2200, 0x1D6C1),
    "Sk": (0xA700, 0x1F3FB),
    "Cf": (0x200B, 0x110BD),
}
# The same within scripts that patterns name.
SCRIPT_STAND_INS = {
    "Han": (None, 0x20000),
    "Hiragana": (None, 0x1B001),
    "Katakana": (None, 0x1B000),
}


def pcre_set(pattern, characters):
    text = pattern.encode()
    error, offset = ctypes.c_int(), ctypes.c_size_t()
    code = PCRE.pcre2_compile_8(
        text, ctypes.c_size_t(len(text)), UTF | UCP, ctypes.byref(error), ctypes.byref(offset), None
    )
    assert code, pattern
    match = ctypes.c_void_p(PCRE.pcre2_match_data_create_8(4, None))
    found = set()
    for c in characters:
        s = chr(c).encode()
        if (
            PCRE.pcre2_match_8(
                ctypes.c_void_p(code),
                s,
                ctypes.c_size_t(len(s)),
                ctypes.c_size_t(0),
                NO_CHECK,
                match,
                None,
            )
            > 0
        ):
            found.add(c)
    return found


def reference_set(pattern):
    splitter = pre_tokenizers.Split(Regex(pattern), "removed", invert=True)
    found = set()
    for at in range(0, len(ALL), 5000):
        for piece, _ in splitter.pre_tokenize_str("".join(map(chr, ALL[at : at + 5000]))):
            found.update(map(ord, piece))
    return found


def split_set(splitter):
    return {c for c in ALL if len(splitter.pre_tokenize_str("a" + chr(c) + "b")) > 1}


def utf8proc_map(text, options):
    data, out = text.encode(), ctypes.c_void_p()
    size = UTF8PROC.utf8proc_map(data, ctypes.c_ssize_t(len(data)), ctypes.byref(out), options)
    return ctypes.string_at(out.value, size).decode()


def ranges(characters):
    result = []
    for c in sorted(characters):
        if result and result[-1][1] == c - 1:
            result[-1][1] = c
        else:
            result.append([c, c])
    return result


def stand_ins():
    newer = reference_set(r"[\p{L}\p{M}\p{N}\p{P}\p{S}\p{Cf}]")
    newer -= pcre_set(r"[\p{L}\p{M}\p{N}\p{P}\p{S}\p{Cf}]", newer)
    result = {0x180E: STAND_INS["Cf"][0]}  # a space for PCRE2
    by_class = [(name, STAND_INS[name], rf"\p{{{name}}}") for name in STAND_INS]
    by_class += [(name, pair, rf"\p{{{name}}}") for name, pair in SCRIPT_STAND_INS.items()]
    for _, pair, pattern in by_class:
        for c in reference_set(pattern) & newer:
            stand_in = pair[0 if c < 0x10000 else 1]
            assert stand_in, hex(c)
            result[c] = stand_in
    assert not newer - set(result), [hex(c) for c in newer - set(result)]
    rows = []
    for c in sorted(result):
        if rows and rows[-1][1] == c - 1 and rows[-1][2] == result[c]:
            rows[-1][1] = c
        else:
            rows.append([c, c, result[c]])
    return rows


def inert():
    """Characters that the reference's normal forms are too old to know."""
    result = set()
    forms = [
        (normalizers.NFC(), COMPOSE),
        (normalizers.NFD(), DECOMPOSE),
        (normalizers.NFKC(), COMPOSE | COMPAT),
        (normalizers.NFKD(), DECOMPOSE | COMPAT),
    ]
    for form, options in forms:
        for c in ALL:
            for text in (chr(c), "a\u0323" + chr(c) + "\u0301\u0327"):
                if form.normalize_str(text) != utf8proc_map(text, STABLE | options):
                    assert form.normalize_str(chr(c)) == chr(c), hex(c)
                    result.add(c)
    return result


def lowercase():
    lower = normalizers.Lowercase()
    rows = []
    for c in ALL:
        text = lower.normalize_str(chr(c))
        if c == 0x130 or text == chr(UTF8PROC.utf8proc_tolower(c)):
            continue
        assert len(text) == 1, hex(c)
        delta = ord(text) - c
        if rows and rows[-1][1] == c - 1 and rows[-1][2] == delta:
            rows[-1][1] = c
        else:
            rows.append([c, c, delta])
    return rows


def table(kind, name, rows):
    out = f"constexpr {kind} {name}[] = {{\n"
    line = "   "
    for row in rows:
        entry = (
            " {"
            + ", ".join(hex(v) if i < 2 or v > 99 else str(v) for i, v in enumerate(row))
            + "},"
        )
        if len(line) + len(entry) > 100:
            out += line + "\n"
            line = "   "
        line += entry
    return out + line + "\n};\n"


def main():
    whitespace = split_set(pre_tokenizers.WhitespaceSplit())
    words = pre_tokenizers.Whitespace()
    word = {
        c for c in ALL if c not in whitespace and len(words.pre_tokenize_str("a" + chr(c))) == 1
    }
    accents = normalizers.StripAccents()
    marks = {c for c in ALL if accents.normalize_str(chr(c)) == ""}
    classes = [
        ("kWhitespace", whitespace),
        ("kNumeric", split_set(pre_tokenizers.Digits(individual_digits=True))),
        ("kPunctuation", split_set(pre_tokenizers.Punctuation())),
        ("kMarks", marks),
        ("kWordCharacters", word),
        ("kUnknownToNormalForms", inert()),
    ]
    body = "".join(
        table("CharacterRange", name, ranges(members)) + "\n" for name, members in classes
    )
    body += table("StandInRange", "kStandIns", stand_ins()) + "\n"
    body += table("LowercaseRange", "kLowercase", lowercase())
    path = pathlib.Path(__file__).resolve().parent.parent / "unicode_tables.cc"
    path.write_text(TEMPLATE.replace("@BODY@", body).replace("@VERSION@", tokenizers.__version__))


TEMPLATE = """// Made by testdata/make_unicode_tables.py from `tokenizers` @VERSION@; do not edit.
#include "trainer/tokenizer/unicode_tables.h"

#include <span>

namespace gantry {
namespace {

// clang-format off
@BODY@// clang-format on

}  // namespace

std::span<const CharacterRange> WhitespaceRanges() { return kWhitespace; }
std::span<const CharacterRange> NumericRanges() { return kNumeric; }
std::span<const CharacterRange> PunctuationRanges() { return kPunctuation; }
std::span<const CharacterRange> MarkRanges() { return kMarks; }
std::span<const CharacterRange> WordRanges() { return kWordCharacters; }
std::span<const CharacterRange> UnknownToNormalFormsRanges() { return kUnknownToNormalForms; }
std::span<const StandInRange> StandInRanges() { return kStandIns; }
std::span<const LowercaseRange> LowercaseRanges() { return kLowercase; }

}  // namespace gantry
"""

if __name__ == "__main__":
    main()
