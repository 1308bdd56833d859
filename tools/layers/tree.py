"""Reads the working tree: which files are ours, and what the BUILD files say.

BUILD files are parsed as Python, which covers the Starlark they use; nothing is evaluated. Every
string inside a dependency list counts, in all branches of a select() or if_cuda().
"""

from __future__ import annotations

import ast
import dataclasses
import os

CPP = (".h", ".cc", ".cu", ".cuh")
HEADERS = (".h", ".cuh")
_SKIPPED_FOLDERS = ("bazel-", ".", "__pycache__")


@dataclasses.dataclass
class Target:
    """One rule call in a BUILD file."""

    package: str
    name: str
    line: int
    files: set[str]  # what srcs, hdrs and textual_hdrs name, relative to the package
    labels: set[str]  # every label it names, visibility apart
    visibility: list[str]


def walk(root: str) -> list[str]:
    """All files under root, relative, with / separators, hidden and generated ones left out."""
    found = []
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(f for f in folders if not f.startswith(_SKIPPED_FOLDERS))
        relative = os.path.relpath(folder, root)
        prefix = "" if relative == "." else relative + "/"
        found += [prefix + name for name in sorted(files) if not name.startswith(".")]
    return found


def read(root: str, path: str) -> str:
    with open(os.path.join(root, path), encoding="utf-8", errors="replace") as file:
        return file.read()


def _strings(node: ast.AST) -> list[str]:
    keys = {key for n in ast.walk(node) if isinstance(n, ast.Dict) for key in n.keys}
    return [
        n.value for n in ast.walk(node)
        if isinstance(n, ast.Constant) and isinstance(n.value, str) and n not in keys
    ]


def _is_label(text: str) -> bool:
    return text.startswith(("//", ":", "@"))


def parse_build(package: str, text: str) -> list[Target]:
    """The targets of one BUILD file; package() is the target without a name.

    Raises SyntaxError when the text is not Python.
    """
    targets = []
    for statement in ast.parse(text).body:
        for call in ast.walk(statement):
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
                continue
            arguments = {k.arg: k.value for k in call.keywords if k.arg}
            is_package = call.func.id == "package"
            if "name" not in arguments and not is_package:
                continue
            names = _strings(arguments["name"]) if "name" in arguments else []
            files: set[str] = set()
            labels: set[str] = set()
            visibility: list[str] = []
            for argument, value in arguments.items():
                strings = _strings(value)
                if argument in ("visibility", "default_visibility"):
                    visibility += strings
                    continue
                if argument == "name":
                    continue
                labels |= {s for s in strings if _is_label(s)}
                if argument in ("srcs", "hdrs", "textual_hdrs"):
                    files |= {s.lstrip(":") for s in strings if not s.startswith(("//", "@"))}
            if call.func.id == "gantry_cc_test" and "srcs" not in arguments and names:
                files.add(names[0] + ".cc")
            if call.func.id == "gantry_cc_binary" and "srcs" not in arguments and names:
                files.add(names[0] + ".cc")
            targets.append(
                Target(package, names[0] if names else "", call.lineno, files, labels, visibility)
            )
    return targets


def strip_comments(text: str) -> str:
    """C++ text with comments and the contents of literals blanked; line breaks stay."""
    out = []
    i, n = 0, len(text)
    while i < n:
        two = text[i:i + 2]
        if two == "//":
            end = text.find("\n", i)
            i = n if end < 0 else end
        elif two == "/*":
            end = text.find("*/", i + 2)
            end = n if end < 0 else end + 2
            out.append("\n" * text.count("\n", i, end))
            i = end
        elif text[i] == '"' and out and out[-1] == "R" and text.find("(", i) > 0:
            close = ")" + text[i + 1:text.find("(", i)] + '"'
            end = text.find(close, i)
            end = n if end < 0 else end + len(close)
            out.append('""' + "\n" * text.count("\n", i, end))
            i = end
        elif text[i] == '"' or (text[i] == "'" and not (i and text[i - 1].isalnum())):
            quote = text[i]
            end = i + 1
            while end < n and text[end] != quote and text[end] != "\n":
                end += 2 if text[end] == "\\" else 1
            out.append(quote * 2)
            i = end + 1 if end < n and text[end] == quote else end
        else:
            out.append(text[i])
            i += 1
    return "".join(out)
