"""Writes ../text_classes.cc and ../text_cases.cc: what Python's str methods know of code points.

    python3 testdata/make_text_tables.py    (in trainer/chat_template)

Python 3.11 has Unicode 14. Surrogates are left out: our text is UTF-8.
"""

import sys

CODES = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]


def runs(test):
    """Code points to skip and to take, in turns, from 0 on."""
    numbers, end = [], 0
    first = None
    for code in CODES + [0x110000]:
        passes = code < 0x110000 and test(chr(code))
        if passes and first is None:
            first = code
        if first is not None and (not passes):
            last = CODES[CODES.index(code) - 1] if code in (0xE000,) else code - 1
            numbers += [first - end, last + 1 - first]
            end, first = last + 1, None
    return numbers


def mappings(convert):
    """Runs [first, last, step, delta] of simple mappings, and the rest as texts."""
    found, texts = [], []
    for code in CODES:
        out = convert(chr(code))
        if out == chr(code):
            continue
        if len(out) > 1:
            texts.append((code, out))
            continue
        delta = ord(out) - code
        last = found[-1] if found else None
        if last and last[3] == delta and last[2] in (0, code - last[1]) and code - last[1] <= 2:
            last[2] = code - last[1]
            last[1] = code
        else:
            found.append([code, code, 0, delta])
    return [[a, b, s or 1, d] for a, b, s, d in found], texts


class Source:
    def __init__(self, path):
        self.file = open(path, "w")
        version = "%d.%d" % sys.version_info[:2]
        self.line(f"// Written by testdata/make_text_tables.py with Python {version}. Do not edit.")
        self.line("// clang-format off")
        self.line('#include "trainer/chat_template/text_tables.h"\n')
        self.line("#include <cstdint>\n")
        self.line("namespace gantry::text_tables {\nnamespace {\n")

    def line(self, text):
        self.file.write(text + "\n")

    def array(self, declaration, items):
        self.line(declaration + " = {")
        row = "   "
        for item in items:
            if len(row) + 2 + len(item) > 100:
                self.line(row)
                row = "   "
            row += " " + item + ","
        self.line(row + "};\n")


CLASSES = {
    "Space": str.isspace,
    "Alphabetic": str.isalpha,
    "Decimal": str.isdecimal,
    "Digit": str.isdigit,
    "Upper": str.isupper,
    "Lower": str.islower,
    "Printable": str.isprintable,
    "Cased": lambda c: (c + "a").title()[-1] == "a",
    # Looked through on the way from a sigma to the letter before it.
    "IgnoredBeforeSigma": (
        lambda c: ("Α" + c + "Σ").lower()[-1] == "ς" and (c + "Σ").lower()[-1] != "ς"
    ),
}
CASES = {
    "Upper": str.upper,
    "Lower": lambda c: "σ" if c == "Σ" else c.lower(),
    "Title": str.title,
}

classes = Source("text_classes.cc")
for name, test in CLASSES.items():
    classes.array(f"constexpr uint32_t k{name}[]", map(str, runs(test)))
classes.line("}  // namespace\n")
for name in CLASSES:
    classes.line(f"bool Is{name}(char32_t code) {{ return Holds(k{name}, code); }}")
classes.line("\n}  // namespace gantry::text_tables\n// clang-format on")

cases = Source("text_cases.cc")
for name, convert in CASES.items():
    simple, texts = mappings(convert)
    cases.array(
        f"constexpr CaseRun k{name}Runs[]", (f"{{{a}, {b}, {s}, {d}}}" for a, b, s, d in simple)
    )
    cases.array(
        f"constexpr CaseText k{name}Texts[]",
        (
            f'{{{code}, "' + "".join(f"\\x{byte:02x}" for byte in text.encode()) + '"}'
            for code, text in texts
        ),
    )
cases.line("}  // namespace\n")
for name in CASES:
    cases.line(f"CaseMapping To{name}() {{ return {{k{name}Runs, k{name}Texts}}; }}")
cases.line("\n}  // namespace gantry::text_tables\n// clang-format on")
