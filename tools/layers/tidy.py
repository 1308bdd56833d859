"""The tidy rules regular expressions can hold: banned calls, sizes, columns, guards, documents."""

from __future__ import annotations

import dataclasses
import os
import re

import tree

COLUMNS = 100
RATCHET = "tools/layers/ratchet.txt"
_TEXT = tree.CPP + (".py", ".sh", ".bzl", ".bazel", ".BUILD")
_UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX)\b")
_THREAD_REASON = re.compile(r"//\s*thread: \S")
_README_LINES = 40


@dataclasses.dataclass(frozen=True)
class Ban:
    """Code only some places may hold. `allowed` are path prefixes; `tests` lets tests do it."""

    name: str
    pattern: re.Pattern[str]
    instead: str
    allowed: tuple[str, ...] = ()
    tests: bool = False
    excuse: re.Pattern[str] | None = None  # a comment in the file that permits it


def _ban(name: str, pattern: str, instead: str, *allowed: str, **options) -> Ban:
    return Ban(name, re.compile(pattern), instead, allowed, **options)


BANS = (
    _ban("printing",
         r"(?<![\w:])(?:std::)?(?:v?printf|puts|putchar)\s*\(|std::(?:cout|cerr|clog)\b"
         r"|\bv?fprintf\s*\(\s*std(?:out|err)\b|\bfputs\s*\(.*,\s*std(?:out|err)\b",
         "log through base/log.h, or return text",
         "trainer/cli/", "base/log", "base/check", "benches/", tests=True),
    _ban("thread", r"std::j?thread\b(?!::)|std::async\b|\bpthread_create\b",
         "use base/parallel_for.h, or say why in this file: `// thread: reason`", "base/",
         tests=True, excuse=_THREAD_REASON),
    _ban("sleep", r"\b(?:sleep_for|sleep_until|usleep|nanosleep|sleep)\s*\(",
         "wait through base/clock.h", "base/clock"),
    _ban("random",
         r"(?<![\w.>])s?rand\s*\(|\bdrand48\b|std::(?:random_device|default_random_engine)\b",
         "draw from base/random.h", "base/random"),
    _ban("mutex", r"\babsl::(?:Mutex|MutexLock|CondVar|Notification)\b|absl/synchronization/",
         "use base/mutex.h (TSan reports false races on absl::Mutex)"),
    _ban("std mutex",
         r"std::(?:\w*mutex|(?:scoped|unique|shared)_lock|lock_guard|condition_variable\w*)\b",
         "use base/mutex.h, which carries the thread-safety annotations", "base/mutex"),
    _ban("absl twin", r"\babsl::(?:string_view|optional|Span|make_unique|variant)\b",
         "use the std type; base/strings.h holds the bridge", "base/strings", "base/status"),
    _ban("throw", r"\bthrow\b(?!\s*\()", "return absl::Status", tests=True),
    _ban("exit", r"(?<![\w.>:])(?:std::|::)?_?(?:exit|quick_exit|abort)\s*\(",
         "return absl::Status, or CHECK", "base/check", "trainer/cli/", "benches/", tests=True),
    _ban("TBB", r"\btbb::|<(?:oneapi/)?tbb/|\boneapi::tbb\b", "use base/parallel_for.h",
         "base/", "benches/"),
    _ban("liburing", r"\bio_uring_\w+\s*\(|<liburing", "use nvme/", "nvme/", "benches/"),
    _ban("oneDNN", r"\bdnnl::|\bdnnl_\w+|<oneapi/dnnl/|<dnnl", "use kernels/",
         "kernels/", "benches/"),
    _ban("PCRE2", r"\bpcre2_\w+\s*\(|<pcre2", "use trainer/tokenizer/regex.h",
         "trainer/tokenizer/regex"),
    _ban("utf8proc", r"\butf8proc_\w+\s*\(|<utf8proc", "use trainer/tokenizer/unicode.h",
         "trainer/tokenizer/unicode"),
    _ban("Highway", r"\bhwy::|[\"<]hwy/", "use kernels/ or offload/",
         "kernels/", "offload/", "benches/"),
    _ban("CUDA", r"\bcuda[A-Z]\w*\s*\(|<cuda[_.]", "use device/cuda or kernels/",
         "device/", "kernels/", "benches/", "tests/gpu/"),
    _ban("NCCL", r"\bnccl[A-Z]\w*\s*\(|<nccl", "use parallel/comm/", "parallel/comm/"),
)


def is_test(path: str) -> bool:
    stem = os.path.splitext(os.path.basename(path))[0]
    return stem.endswith("_test") or path.startswith("tests/")


def is_test_support(path: str) -> bool:
    """A test, or code that only tests link."""
    return is_test(path) or "/testing" in path


def line_limit(path: str) -> int | None:
    """The most lines a file may have; None when there is no limit."""
    if is_test(path):
        return 800
    if path.endswith(tree.HEADERS):
        return 250
    if path.endswith(tree.CPP + (".py", ".sh", ".bzl")) or path == "dev":
        return 500
    return None


def banned(path: str, text: str) -> list[str]:
    """Calls that belong elsewhere."""
    problems = []
    # Literals are blanked in code, so includes are matched on the line as it stands.
    raw_lines = text.splitlines()
    for number, line in enumerate(tree.strip_comments(text).splitlines(), 1):
        if line.lstrip().startswith("#"):
            line = raw_lines[number - 1]
        for ban in BANS:
            if path.startswith(ban.allowed) or (ban.tests and is_test_support(path)):
                continue
            if not ban.pattern.search(line):
                continue
            if ban.excuse and ban.excuse.search(text):
                continue
            problems.append(f"{path}:{number}: {ban.name}: {ban.instead}")
    return problems


def lines(path: str, text: str) -> list[str]:
    """Long lines, and marks of unfinished work."""
    problems = []
    for number, line in enumerate(text.splitlines(), 1):
        fixed = "://" in line or line.startswith(("#include", "#ifndef"))
        if len(line) > COLUMNS and not fixed:
            problems.append(f"{path}:{number}: {len(line)} columns, at most {COLUMNS}")
        if _UNFINISHED.search(line) and not path.startswith("tools/layers/"):
            problems.append(f"{path}:{number}: finish it, or file an issue and drop the mark")
    return problems


def guard(path: str, text: str) -> list[str]:
    """A header's include guard is its path."""
    expected = "GANTRY_" + re.sub(r"\W", "_", path).upper() + "_"
    ifndef = re.search(r"^#ifndef (\w+)\n#define (\w+)$", text, re.MULTILINE)
    # Highway compiles such a header once per target, behind a toggle of its own.
    if path.endswith("-inl.h") or (ifndef and ifndef[1] == ifndef[2] == expected):
        return []
    return [f"{path}:1: include guard must be {expected}"]


def document(path: str, text: str) -> list[str]:
    """One `# Title`, on the first line; a folder's README is short."""
    problems = []
    outside_code = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    titles = len(re.findall(r"^# ", outside_code, re.MULTILINE))
    if titles != 1 or not text.startswith("# "):
        problems.append(f"{path}:1: one `# Title`, on the first line")
    count = text.count("\n")
    if os.path.basename(path) == "README.md" and "/" in path and count > _README_LINES:
        problems.append(f"{path}: {count} lines, a folder's README has at most {_README_LINES}")
    return problems


def read_ratchet(text: str) -> dict[str, int]:
    """Files that may be longer than the limit, and how long: lines `PATH LINES`."""
    entries = {}
    for line in text.splitlines():
        line = line.split("#", 1)[0].strip()
        if line:
            path, count = line.rsplit(None, 1)
            entries[path] = int(count)
    return entries


def sizes(counts: dict[str, int], ratchet: dict[str, int]) -> list[str]:
    """Files over their limit, and exceptions that are no longer needed or too generous."""
    problems = []
    for path, count in sorted(counts.items()):
        limit = line_limit(path)
        if limit is None:
            continue
        if path in ratchet:
            if count <= limit:
                problems.append(f"{RATCHET}: {path} is within its limit now; remove it")
            elif count < ratchet[path]:
                problems.append(f"{RATCHET}: {path} shrank to {count} lines; lower its entry")
            elif count > ratchet[path]:
                problems.append(f"{path}: {count} lines, {ratchet[path]} by {RATCHET}; split it")
        elif count > limit:
            problems.append(f"{path}: {count} lines, at most {limit}; split it")
    problems += [f"{RATCHET}: {path} does not exist; remove it"
                 for path in sorted(set(ratchet) - set(counts))]
    return problems


def all_rules(root: str, files: list[str]) -> list[str]:
    """Every tidy rule on every file."""
    problems = []
    counts = {}
    for path in files:
        if path.endswith(".md"):
            problems += document(path, tree.read(root, path))
        if not path.endswith(_TEXT) and path != "dev":
            continue
        text = tree.read(root, path)
        counts[path] = text.count("\n")
        problems += lines(path, text)
        if path.endswith(tree.CPP):
            problems += banned(path, text)
        if path.endswith(tree.HEADERS):
            problems += guard(path, text)
    ratchet = read_ratchet(tree.read(root, RATCHET)) if RATCHET in files else {}
    return problems + sizes(counts, ratchet)
