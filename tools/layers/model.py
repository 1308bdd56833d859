"""The layer graph: reads LAYERS, answers who may use whom, and writes the package groups.

Used by the checks beside it; no third-party code.
"""

from __future__ import annotations

import dataclasses

ALL = "all"
GROUPS_BEGIN = "# BEGIN package groups, generated from LAYERS by ./dev layers --write"
GROUPS_END = "# END package groups"


class LayersError(Exception):
    """LAYERS cannot be used: bad syntax, an unknown layer, or a cycle."""


@dataclasses.dataclass(frozen=True)
class Part:
    """One header of a layer, `chunk:ids`, for a layer that may use that header alone."""

    layer: str
    name: str

    def __str__(self) -> str:
        return f"{self.layer}:{self.name}"


class Layers:
    """An acyclic graph of layers. Order is that of the file, lowest first."""

    def __init__(self, text: str) -> None:
        self.names: list[str] = []
        self._uses: dict[str, list[str]] = {}  # whole layers, as LAYERS names them
        self._parts: dict[str, set[Part]] = {}  # single headers
        for number, line in enumerate(text.splitlines(), 1):
            line = line.split("#", 1)[0].strip()
            if line:
                self._add(line, f"LAYERS:{number}")
        others = [n for n in self.names if ALL not in self._uses[n]]
        for name in self.names:
            if ALL in self._uses[name]:
                self._uses[name] = others
        for name in self.names:
            for use in self._uses[name] + [part.layer for part in self._parts[name]]:
                if use not in self._uses:
                    raise LayersError(f"LAYERS: {name} names the unknown layer {use}")
        self._may: dict[str, set[str]] = {}
        for name in self.names:
            self._close(name, [])

    def _add(self, line: str, where: str) -> None:
        name, *rest = line.split(None, 1)
        if not name.endswith(":") or len(name) == 1:
            raise LayersError(f"{where}: expected `FOLDER: FOLDERS`")
        name = name[:-1]
        if name in self._uses:
            raise LayersError(f"{where}: {name} appears twice")
        uses = rest[0].split() if rest else []
        self.names.append(name)
        self._uses[name] = [use for use in uses if ":" not in use]
        self._parts[name] = {Part(*use.split(":", 1)) for use in uses if ":" in use}

    def _close(self, name: str, path: list[str]) -> set[str]:
        """What `name` may use: itself, the layers it names, and all those may use."""
        if name in path:
            cycle = " -> ".join(path[path.index(name):] + [name])
            raise LayersError(f"LAYERS: cycle {cycle}")
        if name not in self._may:
            reached = {name}
            for use in self._uses[name]:
                reached |= self._close(use, path + [name])
            for part in self._parts[name]:
                self._close(part.layer, path + [name])  # only to find cycles
            self._may[name] = reached
        return self._may[name]

    def layer_of(self, path: str) -> str | None:
        """The layer a file or package lies in: the longest folder that is a layer."""
        folders = path.split("/")
        for length in range(len(folders), 0, -1):
            name = "/".join(folders[:length])
            if name in self._uses:
                return name
        return None

    def may_use(self, user: str, used: str, part: str = "") -> bool:
        """Whether layer `user` may use layer `used`, or only its header called `part`."""
        return used in self._may[user] or Part(used, part) in self._parts[user]

    def parts(self) -> list[Part]:
        return sorted({p for parts in self._parts.values() for p in parts}, key=str)

    def groups(self) -> dict[str, list[str]]:
        """Package specifications of each group, by group name."""
        groups = {}
        for used in self.names:
            users = [n for n in self.names if self.may_use(n, used)]
            groups["users_of_" + used.replace("/", "_")] = self._specifications(users)
        for part in self.parts():
            users = [n for n in self.names if self.may_use(n, part.layer, part.name)]
            name = f"users_of_{part.layer.replace('/', '_')}_{part.name}"
            groups[name] = self._specifications(users)
        for folder in sorted({n.split("/")[0] for n in self.names} - set(self.names)):
            inside = [n for n in self.names if n.startswith(folder + "/")]
            users = [
                n for n in self.names
                if n in inside or any(self.may_use(n, other) for other in inside)
            ]
            groups["users_of_" + folder] = self._specifications(users)
        return groups

    def _specifications(self, users: list[str]) -> list[str]:
        listed = [f"//{user}/..." for user in users]
        for user in users:
            for inner in self.names:
                if inner.startswith(user + "/") and inner not in users:
                    listed.append(f"-//{inner}/...")
        return sorted(listed)

    def groups_text(self) -> str:
        """The generated section of the root BUILD.bazel, markers included."""
        lines = [GROUPS_BEGIN]
        for name, packages in self.groups().items():
            lines += ["", "package_group(", f'    name = "{name}",', "    packages = ["]
            lines += [f'        "{package}",' for package in packages]
            lines += ["    ],", ")"]
        return "\n".join(lines + ["", GROUPS_END])
