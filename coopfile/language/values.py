"""The types of values, by the names that the settings table uses."""

from __future__ import annotations

from coopfile.language.composite import Backends, Environment, ListOf
from coopfile.language.hosts import HostPatternType, PublishedPortType
from coopfile.language.images import Image
from coopfile.language.paths import HideGlob, HostPath, Profile, RelativePath, WorkspacePath
from coopfile.language.quantities import Count, Duration, Processors, Size
from coopfile.language.value_type import BadValue, Problem, ValueType
from coopfile.language.words import (
    Argument,
    Choice,
    Flag,
    Identity,
    PackageName,
    RuntimeName,
    ShellCommand,
    UserName,
)

__all__ = [
    "Argument",
    "Backends",
    "BadValue",
    "Choice",
    "Count",
    "Duration",
    "Environment",
    "Flag",
    "HideGlob",
    "HostPath",
    "HostPatternType",
    "Identity",
    "Image",
    "ListOf",
    "PackageName",
    "Problem",
    "Processors",
    "Profile",
    "PublishedPortType",
    "RelativePath",
    "RuntimeName",
    "ShellCommand",
    "Size",
    "UserName",
    "ValueType",
    "WorkspacePath",
]
