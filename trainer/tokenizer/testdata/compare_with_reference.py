"""Compares ids, offsets and decoded texts with PyPI `tokenizers` on random texts.

  compare_with_reference.py PROGRAM [--count=N] [--seed=N] [--random=N] [NAME or tokenizer.json ...]

PROGRAM is //trainer/tokenizer/testing:encode_stream. Prints one line for each tokenizer; the exit
status is 1 when anything differs. With --random, that many random files (random_files.py) take the
place of the tokenizers; files that differ stay in the folder that is printed.
"""

import json
import os
import struct
import subprocess
import sys
import tempfile

import tokenizers
from fuzz_texts import Texts
from random_files import RandomFiles
from tokenizers_under_test import ALL


def reference(tokenizer, data):
    """(ids, byte offsets, decoded, decoded without special tokens) of bytes."""
    # Characters of what Python decodes, and where each begins in the bytes.
    begins, text, at = [], [], 0
    while at < len(data):
        for size in (1, 2, 3, 4):
            try:
                text.append(data[at : at + size].decode())
                break
            except UnicodeDecodeError:
                pass
        else:
            # The bytes that one U+FFFD replaces.
            size = next(
                n
                for n in (3, 2, 1)
                if data[at : at + n].decode(errors="replace") == "\ufffd"
                and len(data[at : at + n]) == n
            )
            text.append("\ufffd")
        begins.append(at)
        at += size
    begins.append(at)
    text = "".join(text)
    assert text == data.decode(errors="replace"), data
    encoding = tokenizer.encode(text)
    offsets = [(begins[b], begins[e]) for b, e in encoding.offsets]
    return (
        encoding.ids,
        offsets,
        tokenizer.decode(encoding.ids, skip_special_tokens=False),
        tokenizer.decode(encoding.ids, skip_special_tokens=True),
    )


class Program:
    def __init__(self, path, tokenizer):
        self.process = subprocess.Popen(
            [path, tokenizer], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def numbers(self, count):
        data = self.process.stdout.read(4 * count)
        assert len(data) == 4 * count, "the program has ended"
        return struct.unpack(f"={count}i", data)

    def answer(self, data):
        self.process.stdin.write(struct.pack("=i", len(data)) + data)
        self.process.stdin.flush()
        (count,) = self.numbers(1)
        ids = list(self.numbers(count))
        flat = self.numbers(2 * count)
        decoded = [self.process.stdout.read(self.numbers(1)[0]).decode() for _ in range(2)]
        return ids, list(zip(flat[::2], flat[1::2])), *decoded


def compare(program, name, path, texts, quiet=False):
    tokenizer = tokenizers.Tokenizer.from_file(path)
    ours = Program(program, path)
    differences = 0
    for data in texts:
        expected, got = reference(tokenizer, data), ours.answer(data)
        if expected == got:
            continue
        differences += 1
        if differences <= 5:
            for what, e, g in zip(
                ("ids", "offsets", "text", "text without specials"), expected, got
            ):
                if e != g:
                    print(f"{name}: {data!r}\n  {what}:\n    reference {e}\n    ours      {g}")
    ours.process.stdin.close()
    ours.process.wait()
    if not quiet:
        print(f"{name}: {len(texts)} texts, {differences} differ", flush=True)
    return differences


def compare_random_files(program, options, texts):
    folder = tempfile.mkdtemp(prefix="random_files_")
    files = RandomFiles(int(options.get("seed", 1)))
    differences = refused = 0
    for number in range(int(options["random"])):
        path = os.path.join(folder, f"{number}.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(files.file(), file, ensure_ascii=False)
        try:
            found = compare(program, path, path, texts, quiet=True)
        except BaseException as error:  # the reference panics with an exception of its own
            print(f"{path}: {str(error)[:200]}", flush=True)
            refused += 1
            continue
        differences += found
        if not found:
            os.unlink(path)
    print(
        f"{options['random']} random files, {refused} refused, {differences} texts differ: {folder}"
    )
    return differences


def main():
    options = dict(a[2:].split("=") for a in sys.argv[2:] if a.startswith("--"))
    names = [a for a in sys.argv[2:] if not a.startswith("--")] or list(ALL)
    texts = Texts(int(options.get("seed", 1))).many(int(options.get("count", 2000)))
    if "random" in options:
        sys.exit(1 if compare_random_files(sys.argv[1], options, texts) else 0)
    here = os.path.dirname(os.path.abspath(__file__))
    differences = 0
    for name in names:
        path = name if name.endswith(".json") else os.path.join(here, name + ".json")
        differences += compare(sys.argv[1], name, path, texts)
    sys.exit(1 if differences else 0)


if __name__ == "__main__":
    main()
