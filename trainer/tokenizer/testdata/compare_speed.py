"""Compares the speed of encoding with that of PyPI `tokenizers` on one thread, in turns.

  compare_speed.py PROGRAM [--rounds=N] [--megabytes=N] [NAME or tokenizer.json ...]

PROGRAM is //trainer/tokenizer/testing:encode_speed, built with --config=release. The texts are
English (fortunes) and Python's own sources. For each tokenizer and kind of text: the median over
rounds of the reference's processor time divided by ours, for encode() with offsets one by one, and
for encode_batch_fast() without offsets against ours without.
"""

import glob
import os
import statistics
import struct
import subprocess
import sys
import sysconfig
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
import tokenizers  # noqa: E402
from tokenizers_under_test import ALL  # noqa: E402


def read(paths):
    out = []
    for path in sorted(paths):
        with open(path, encoding="utf-8", errors="replace") as file:
            out.append(file.read())
    return "".join(out)


def kinds(size):
    english = read(
        p for p in glob.glob("/usr/share/games/fortunes/*") if not p.endswith((".dat", ".u8"))
    )[:size]
    code = read(glob.glob(sysconfig.get_paths()["stdlib"] + "/*.py"))[:size]
    cut = lambda text, step: [text[i : i + step] for i in range(0, len(text), step)]
    return {
        "english lines": english.splitlines(),
        "english 4 KiB": cut(english, 4096),
        "code 4 KiB": cut(code, 4096),
        "code 1 MiB": cut(code, 1 << 20),
    }


def timed(call):
    begin = time.process_time()
    result = call()
    return time.process_time() - begin, result


def main():
    options = dict(a[2:].split("=") for a in sys.argv[2:] if a.startswith("--"))
    names = [a for a in sys.argv[2:] if not a.startswith("--")] or list(ALL)
    here = os.path.dirname(os.path.abspath(__file__))
    texts_of = kinds(int(float(options.get("megabytes", 2)) * 1e6))
    for name in names:
        path = name if name.endswith(".json") else os.path.join(here, name + ".json")
        tokenizer = tokenizers.Tokenizer.from_file(path)
        for kind, texts in texts_of.items():
            with tempfile.NamedTemporaryFile() as file:
                file.write(b"".join(struct.pack("=i", len(t.encode())) + t.encode() for t in texts))
                file.flush()
                ours = subprocess.Popen(
                    [sys.argv[1], path, file.name],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
                rows = {"offsets": [], "ids": []}
                for _ in range(int(options.get("rounds", 5))):
                    for what, row in rows.items():
                        ours.stdin.write(what + "\n")
                        ours.stdin.flush()
                        seconds, count = ours.stdout.readline().split()
                        if what == "offsets":
                            theirs, result = timed(
                                lambda: [len(tokenizer.encode(t).ids) for t in texts]
                            )
                            total = sum(result)
                        else:
                            theirs, result = timed(lambda: tokenizer.encode_batch_fast(texts))
                            total = sum(len(e.ids) for e in result)
                        assert total == int(count), (name, kind)
                        row.append((theirs, float(seconds)))
                ours.stdin.close()
            size = sum(len(t.encode()) for t in texts) / 1e6
            line = f"{os.path.basename(name)}, {kind}:"
            for what, row in rows.items():
                ratio = statistics.median(t / o for t, o in row)
                speed = statistics.median(size / o for _, o in row)
                line += f" {what} {ratio:.2f}x ({speed:.1f} MB/s)"
            print(line, flush=True)


if __name__ == "__main__":
    main()
