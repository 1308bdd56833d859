"""Checks the tree against LAYERS and the tidy rules.

    python3 tools/layers [--root DIR] [--write]

Prints one line per problem, `file:line: what, and what to do`, and exits with 1 when there is any.
--write first regenerates the package groups in BUILD.bazel from LAYERS.
"""

from __future__ import annotations

import argparse
import os
import sys

import model
import structure
import tidy
import tree


def check(root: str, write: bool = False) -> list[str]:
    """All problems of the tree at `root`."""
    try:
        layers = model.Layers(tree.read(root, "LAYERS"))
    except model.LayersError as error:
        return [str(error)]
    if write:
        structure.write_groups(root, layers)
    files = tree.walk(root)
    targets, problems = structure.build_files(root, files)
    problems += structure.groups(root, layers)
    problems += structure.includes(root, layers, files)
    problems += structure.dependencies(layers, targets)
    problems += structure.visibility(layers, targets)
    problems += structure.strays(layers, files, targets)
    problems += tidy.all_rules(root, files)
    return problems


def main() -> int:
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(prog="layers", description=__doc__.splitlines()[0])
    parser.add_argument("--root", default=os.path.dirname(os.path.dirname(here)))
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    problems = check(arguments.root, arguments.write)
    for problem in problems:
        print(problem)
    if problems:
        print(f"layers: {len(problems)} problem{'s' if len(problems) > 1 else ''}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
