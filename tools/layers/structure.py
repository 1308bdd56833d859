"""The checks of LAYERS against the tree: includes, BUILD dependencies, visibility, stray files."""

from __future__ import annotations

import os
import re

import model
import tree

_INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')
# Quoted by habit though they are not ours.
_FOREIGN = ("absl/", "benchmark/", "gmock/", "gtest/", "hwy/")
# Folders with code that is in no layer.
_OUTSIDE = ("third_party", "tools")


def _part_of(path: str, layer: str) -> str:
    """The name LAYERS uses for one header of a layer: `ids` for chunk/ids.h."""
    relative = path[len(layer) + 1:]
    return relative[:-2] if relative.endswith(".h") else ""


def includes(root: str, layers: model.Layers, files: list[str]) -> list[str]:
    """Every quoted include stays within what LAYERS allows."""
    problems = []
    known = set(files)
    for path in files:
        user = layers.layer_of(os.path.dirname(path))
        if not path.endswith(tree.CPP) or user is None:
            continue
        for number, line in enumerate(tree.read(root, path).splitlines(), 1):
            match = _INCLUDE.match(line)
            if not match or match[1].startswith(_FOREIGN):
                continue
            used_path = match[1]
            where = f"{path}:{number}"
            if used_path not in known:
                problems.append(f"{where}: no file {used_path}; includes are from the root")
                continue
            used = layers.layer_of(os.path.dirname(used_path))
            if used is None:
                problems.append(f"{where}: {used_path} lies in no layer")
            elif not layers.may_use(user, used, _part_of(used_path, used)):
                problems.append(f"{where}: {user} may not use {used} ({used_path}); see LAYERS")
    return problems


def build_files(root: str, files: list[str]) -> tuple[list[tree.Target], list[str]]:
    """All targets of the tree, and the BUILD files that cannot be read."""
    targets, problems = [], []
    for path in files:
        if os.path.basename(path) == "BUILD":
            problems.append(f"{path}: name it BUILD.bazel")
        if os.path.basename(path) != "BUILD.bazel":
            continue
        try:
            targets += tree.parse_build(os.path.dirname(path), tree.read(root, path))
        except SyntaxError as error:
            problems.append(f"{path}:{error.lineno}: cannot be parsed: {error.msg}")
    return targets, problems


def dependencies(layers: model.Layers, targets: list[tree.Target]) -> list[str]:
    """Every label a target names stays within what LAYERS allows."""
    problems = []
    for target in targets:
        user = layers.layer_of(target.package)
        if user is None:
            continue
        for label in sorted(target.labels):
            if not label.startswith("//"):
                continue
            package, _, name = label[2:].partition(":")
            used = layers.layer_of(package)
            if used is not None and not layers.may_use(user, used, name):
                problems.append(
                    f"{target.package}/BUILD.bazel:{target.line}: {user} may not use {used} "
                    f"({label}); see LAYERS"
                )
    return problems


def visibility(layers: model.Layers, targets: list[tree.Target]) -> list[str]:
    """No target is visible to more than its layer's group."""
    problems = []
    groups = {name: set(packages) for name, packages in layers.groups().items()}
    for target in targets:
        layer = layers.layer_of(target.package)
        if layer is None:
            continue
        allowed = {name for name, group in groups.items()
                   if group <= groups["users_of_" + layer.replace("/", "_")]}
        allowed |= {f"users_of_{part.layer.replace('/', '_')}_{part.name}"
                    for part in layers.parts()
                    if part.layer == layer and part.name == target.name}
        for label in target.visibility:
            package, _, name = label.removeprefix("//").partition(":")
            own = package == "" or layers.layer_of(package) == layer
            if label == "//visibility:private" or (label.startswith("//:") and name in allowed):
                continue
            if own and name in ("__pkg__", "__subpackages__"):
                continue
            problems.append(
                f"{target.package}/BUILD.bazel:{target.line}: {label} is wider than {layer}'s "
                f"group, //:users_of_{layer.replace('/', '_')}"
            )
    return problems


def groups(root: str, layers: model.Layers) -> list[str]:
    """The package groups in the root BUILD.bazel are those LAYERS gives."""
    text = tree.read(root, "BUILD.bazel")
    begin, end = text.find(model.GROUPS_BEGIN), text.find(model.GROUPS_END)
    if begin < 0 or end < 0:
        return ["BUILD.bazel: the generated package groups are missing"]
    found = text[begin:end + len(model.GROUPS_END)]
    problems = []
    if found != layers.groups_text():
        problems.append("BUILD.bazel: package groups differ from LAYERS; ./dev layers --write")
    if "package_group(" in text[:begin] + text[end:]:
        problems.append("BUILD.bazel: a package group outside the generated section")
    return problems


def write_groups(root: str, layers: model.Layers) -> None:
    """Puts the generated package groups into the root BUILD.bazel."""
    text = tree.read(root, "BUILD.bazel")
    begin, end = text.find(model.GROUPS_BEGIN), text.find(model.GROUPS_END)
    if begin >= 0 and end >= 0:
        text = text[:begin] + layers.groups_text() + text[end + len(model.GROUPS_END):]
    else:
        text = text + layers.groups_text() + "\n"
    with open(os.path.join(root, "BUILD.bazel"), "w", encoding="utf-8") as file:
        file.write(text)


def strays(layers: model.Layers, files: list[str], targets: list[tree.Target]) -> list[str]:
    """Every C++ file lies in a layer and in a target of the package that holds it."""
    listed = {f"{t.package}/{file}" for t in targets for file in t.files}
    problems = []
    for path in files:
        if not path.endswith(tree.CPP) or path.split("/")[0] in _OUTSIDE:
            continue
        if layers.layer_of(os.path.dirname(path)) is None:
            problems.append(f"{path}: lies in no layer of LAYERS")
        elif path not in listed:
            problems.append(f"{path}: lies in no BUILD target")
    return problems
