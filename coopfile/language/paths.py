"""Paths of the host, of the workspace, of the home and of the sandbox; and globs."""

from __future__ import annotations

import re
from typing import Any

from coopfile.language.diagnostics import quoted
from coopfile.language.suggest import did_you_mean
from coopfile.language.value_type import BadValue, ValueType, check_string

# Linux's limits, in bytes.
_PATH_MAX = 4095
_NAME_MAX = 255

_KERNELS = ("/proc", "/sys", "/dev")
_GLOBS_ONLY = "only files.hide takes globs; name the path itself, or the directory that holds it"


_SET = re.compile(r"\[([!^][^\[\]]+|[^!^\[\]][^\[\]]*)\]")


class HostPath(ValueType):
    """A path of the host: absolute, or ``~/…`` for one below the caller's home. Typed: a str.

    It comes out without ``.``, doubled and trailing slashes. ``..`` is refused, for a
    path should be what it looks like; so are ``/`` and what belongs to the kernel,
    the whole home (name what is needed of it), ``~user`` and globs.
    """

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the raw value."""
        return {"type": "string", "pattern": "^(/|~/)"}

    def parse(self, raw: object) -> str:
        """Return the normalised path. Raises BadValue."""
        text = _check(raw, "a path of the host", '"~/.gitconfig" or "/opt/tools"')
        if text == "~" or text.startswith("~/"):
            rest = _normal(text[2:], text)
            if not rest:
                raise BadValue(
                    "the whole home cannot be given", "name what is needed below it, as in ~/.gitconfig"
                )
            return f"~/{rest}"
        if text.startswith("~"):
            raise BadValue(
                f"{quoted(text)} names another user's home",
                "only ~/ (your own) is known; write the absolute path",
            )
        if text.startswith("$"):
            raise BadValue(f"variables are not expanded: {quoted(text)}", "write ~/ for your home")
        if not text.startswith("/"):
            raise BadValue(f"{quoted(text)} is not absolute", "a path of the host begins with / or ~/")
        path = "/" + _normal(text, text)
        if path == "/":
            raise BadValue("the whole file system cannot be given", "name the directories that are needed")
        owner = _within(path, _KERNELS)
        if owner:
            raise BadValue(f"{owner} of the host cannot be given", "every sandbox has its own")
        return path


class RelativePath(ValueType):
    """A path below the workspace, or below the home: relative, without ``..``. Typed: a str, normalised."""

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the raw value."""
        return {"type": "string", "pattern": "^[^/]", "not": {"pattern": r"(^|/)\.\.(/|$)"}}

    def parse(self, raw: object) -> str:
        """Return the normalised path. Raises BadValue."""
        text = _check(raw, "a relative path", '".claude"')
        if text.startswith("/"):
            raise BadValue(f"{quoted(text)} is absolute", "write it relative to the directory it is in")
        path = _normal(text, text)
        if path.startswith("~"):
            relative = path.partition("/")[2] or ".cache"
            raise BadValue(
                f"{quoted(text)} begins with ~", f"write {quoted(relative)}: it is relative already"
            )
        if not path:
            raise BadValue(f"{quoted(text)} is the whole directory", "name something inside it")
        return path


class HideGlob(ValueType):
    """A glob of what to hide in the workspace. Typed: a str, normalised.

    It is matched against the path relative to the workspace, one component after
    the other, and hides what it matches with everything below:

    - ``*`` is any number of characters, a leading dot included, but never ``/``;
      ``?`` is one; ``[ab]``, ``[a-z]`` one of these; ``[!ab]`` one that is not.
    - ``**`` as a whole component is any number of directories, none included. At
      the end it says nothing that the directory before it does not, and is dropped.
    - Anything else is itself. Case counts. There is no escape: ``[*]`` is a star.

    So ``.env`` is that of the top directory, ``**/.env`` all of them. What has a
    meaning in other tools' globs, and would silently match nothing here, is refused.
    """

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the raw value."""
        return {"type": "string", "pattern": "^[^/!]", "not": {"pattern": r"(^|/)\.\.(/|$)"}}

    def parse(self, raw: object) -> str:
        """Return the normalised glob. Raises BadValue."""
        text = check_string(raw, "a glob", '"**/.env*"')
        path = _normal(text, text)
        if path.startswith("!"):
            raise BadValue(
                "a glob cannot take back what another one hides",
                "leave it out, and write the other globs so that they do not match it",
            )
        if text.startswith("/") or path.startswith("~"):
            raise BadValue(f"{quoted(text)} is not relative", "globs are relative to the workspace already")
        if "\\" in text:
            raise BadValue("a backslash escapes nothing in a glob", "write [*] for a star")
        parts = [part for part in path.split("/") if part]
        for part in parts:
            self._check_part(part)
        kept: list[str] = []
        for part in parts:
            if part != "**" or kept[-1:] != ["**"]:
                kept.append(part.replace("[^", "[!"))
        while kept and kept[-1] == "**":
            kept.pop()
        if all(part in ("*", "**") for part in kept):
            raise BadValue(f"{quoted(text)} would hide the whole workspace", "name what to hide in it")
        return "/".join(kept)

    @staticmethod
    def _check_part(part: str) -> None:
        plain = re.sub(_SET, "", part)
        if "[" in plain or "]" in plain:
            raise BadValue(
                f"{quoted(part)} has a [ or ] without its other half", "a set is written [abc] or [!abc]"
            )
        if "**" in plain and part != "**":
            raise BadValue(
                f"** stands for whole directories, so not in {quoted(part)}", "write * inside a name"
            )
        if "{" in plain and "}" in plain:
            raise BadValue(
                f"braces have no meaning in a glob: {quoted(part)}",
                "write one glob for each; [{] stands for a brace",
            )
        for members in (found[found[0] in "!^" :] for found in re.findall(_SET, part)):
            if re.search(r"--|&&|\|\||~~", members):
                raise BadValue(f"{quoted(members)} is not a set of characters", "name each character once")
            for low, high in re.findall(r"(.)-(.)", members):
                if low > high:
                    raise BadValue(f"the range {quoted(f'{low}-{high}')} is empty", f"write {high}-{low}")


class WorkspacePath(ValueType):
    """Where the workspace is inside: an absolute path, or ``host`` for the host's own. Typed: a str.

    Places that the sandbox is made of are refused, and those that others have to
    find in it, such as /tmp.
    """

    _within = ("/usr", "/bin", "/sbin", "/etc", "/proc", "/dev", "/sys", "/boot", "/nix", "/run", "/var/run")
    _itself = ("/", "/tmp", "/var", "/var/tmp", "/home", "/root", "/opt", "/srv", "/mnt")

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the raw value."""
        return {"type": "string", "anyOf": [{"const": "host"}, {"pattern": "^/"}]}

    def parse(self, raw: object) -> str:
        """Return ``host`` or the normalised path. Raises BadValue."""
        text = _check(raw, "the workspace's path", '"/workspace"')
        if text == "host":
            return text
        if not text.startswith("/"):
            hint = did_you_mean(text, ["host"]) or 'it begins with /, or is "host"'
            raise BadValue(f"{quoted(text)} is not absolute", hint)
        path = "/" + _normal(text, text)
        if path in self._itself or re.match(r"/lib[^/]*(/|$)", path) or _within(path, self._within):
            raise BadValue(
                f"the workspace cannot be at {quoted(path)}",
                'choose a place of its own, such as "/workspace"',
            )
        return path


class Profile(ValueType):
    """A Seatbelt profile: ``restrictive``, ``permissive``, or a file of one's own. Typed: a str.

    The file is absolute, below the home (``~/…``), or below the project (``./…``).
    """

    _names = ("restrictive", "permissive")

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the raw value."""
        return {"type": "string", "anyOf": [{"enum": list(self._names)}, {"pattern": r"^(/|~/|\./)"}]}

    def parse(self, raw: object) -> str:
        """Return the name or the normalised path. Raises BadValue."""
        text = _check(raw, "a profile", '"restrictive"')
        if text in self._names:
            return text
        if text.startswith("./"):
            return f"./{RelativePath().parse(text)}"
        if text.startswith(("/", "~")):
            return HostPath().parse(text)
        hint = did_you_mean(text, self._names) or "the path of a profile begins with /, ~/ or ./"
        raise BadValue(f'{quoted(text)} is not "restrictive", "permissive" or a path', hint)


def _check(raw: object, what: str, example: str) -> str:
    text = check_string(raw, what, example)
    if "*" in text or "?" in text:
        raise BadValue(f"{quoted(text)} is a glob", _GLOBS_ONLY)
    return text


def _normal(text: str, whole: str) -> str:
    """Return a path without empty and ``.`` components, and without slashes around it."""
    parts = [part for part in text.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise BadValue(f'".." has no place in a path: {quoted(whole)}', "write the path that is meant")
    if len(whole.encode()) > _PATH_MAX or any(len(part.encode()) > _NAME_MAX for part in parts):
        raise BadValue(
            f"{quoted(whole)} is too long",
            f"{_NAME_MAX} bytes for a name and {_PATH_MAX} for a path are the most",
        )
    path = "/".join(parts)
    if path != path.strip():
        raise BadValue(f"{quoted(whole)} begins or ends with a space", f"write {quoted(path.strip())}")
    return path


def _within(path: str, roots: tuple[str, ...]) -> str | None:
    return next((root for root in roots if path == root or path.startswith(root + "/")), None)
