"""Reads Cluster Autoscaler's flags, and says what each becomes: an option of Tenon, or nothing and why. Pure.

Flags are read as Cluster Autoscaler's own library (pflag) reads them: ``--x=y``, ``--x y``, ``--x`` for booleans,
``-v=4``; underscores are hyphens; of a repeated flag the last value counts, unless it takes several.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, TypeVar

from cli.migrate import flag_notes
from shared.api.duration import DurationError, parse_duration
from shared.base.struct import Struct
from shared.node_groups import options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

Outcome = Literal["kept", "no meaning", "different", "unknown"]
T = TypeVar("T")

_VARIABLE = re.compile(r"\$\(([A-Za-z_][A-Za-z0-9_.-]*)\)")
_NUMBER = re.compile(r"\d*\.?\d+|\d+\.")
_BOOLEANS = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), "true"),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), "false"),
}
"""As Go reads them."""
_SEVERAL = frozenset({flag_notes.NODES, flag_notes.AUTO_DISCOVERY})
_LEASE = {
    "leader-elect": "true",
    "leader-elect-resource-lock": "leases",
    "leader-elect-resource-name": "cluster-autoscaler",
    "leader-elect-resource-namespace": "kube-system",
    "namespace": "kube-system",
}
"""Flags with which Cluster Autoscaler holds the Lease that Tenon looks at; also its defaults."""


class Flag(Struct):
    """A flag as it is written, without hyphens before its name."""

    name: str
    value: str


class FlagResult(Struct, kw_only=True):
    """What a flag becomes. ``option`` and ``value`` are Tenon's if it is kept; the note says what is to know."""

    flag: Flag
    outcome: Outcome
    note: str = ""
    option: str = ""
    value: str = ""


class NamedGroup(Struct):
    """A group of flag ``--nodes``."""

    minimum: int
    maximum: int
    name: str


class Translation(Struct, kw_only=True):
    """What the flags become. ``options`` is the ConfigMap's data, without the choice of groups.

    ``discoveries`` are the tags of each auto-discovery, by key; the value None is any. ``obstacles`` prevent the
    migration. ``invisible`` says why Tenon can't see that this Cluster Autoscaler runs; empty: it can.
    """

    options: Mapping[str, str]
    results: tuple[FlagResult, ...]
    named: tuple[NamedGroup, ...]
    discoveries: tuple[Mapping[str, str | None], ...]
    obstacles: tuple[str, ...]
    invisible: str


def read(arguments: Iterable[str], environment: Mapping[str, str]) -> tuple[Flag, ...]:
    """The flags of a container's command and arguments, in their order; ``environment`` is the container's."""
    rest = [_VARIABLE.sub(lambda match: environment.get(match[1], match[0]), argument) for argument in arguments]
    return tuple(_flags(rest))


def _flags(arguments: Sequence[str]) -> Iterator[Flag]:
    position = 0
    while position < len(arguments):
        argument = arguments[position]
        position += 1
        if argument == "--":
            return
        if not argument.startswith("-") or argument == "-":
            continue
        name, has_value, value = _split(argument)
        if not has_value and name in flag_notes.BOOLEAN:
            value = "true"
        elif not has_value and position < len(arguments) and not arguments[position].startswith("--"):
            value = arguments[position]
            position += 1
        elif not has_value:
            value = "true"
        yield Flag(name, value)


def _split(argument: str) -> tuple[str, bool, str]:
    """The name, whether it has a value, and the value."""
    name, equals, value = argument.lstrip("-").partition("=")
    if not argument.startswith("--") and not equals and len(name) > 1:  # -v4
        return name[0], True, name[1:]
    return name.replace("_", "-"), bool(equals), value


def translate(flags: Sequence[Flag]) -> Translation:
    """What the flags become."""
    last = {flag.name: flag for flag in flags}
    results = tuple(_result(flag, last) for flag in flags if flag.name not in _SEVERAL and last[flag.name] is flag)
    named, wrong_groups = _parsed(flags, flag_notes.NODES, _named_group)
    discoveries, wrong_tags = _parsed(flags, flag_notes.AUTO_DISCOVERY, _tags)
    provider = last.get(flag_notes.CLOUD_PROVIDER, Flag(flag_notes.CLOUD_PROVIDER, "aws")).value
    foreign = [] if provider == "aws" else [f"it is for cloud provider {provider}, and Tenon is for aws only"]
    return Translation(
        options={result.option: result.value for result in results if result.outcome == "kept"},
        results=results,
        named=tuple(named),
        discoveries=tuple(discoveries),
        obstacles=(*foreign, *wrong_groups, *wrong_tags),
        invisible=_invisible(last),
    )


def _result(flag: Flag, last: Mapping[str, Flag]) -> FlagResult:
    option = flag_notes.RENAMED.get(flag.name, flag.name)
    if option != flag.name and option in last:
        return FlagResult(flag=flag, outcome="different", note=f"{option} is set, too, and counts")
    if option in options.FLAGS and option not in flag_notes.TENONS_OWN:
        return _kept(flag, option)
    if flag.name in flag_notes.WITHOUT_MEANING:
        return FlagResult(flag=flag, outcome="no meaning", note=flag_notes.WITHOUT_MEANING[flag.name])
    if flag.name in flag_notes.DIFFERENT:
        same, note = flag_notes.DIFFERENT[flag.name]
        if same and _same(flag.value, same):
            return FlagResult(flag=flag, outcome="no meaning", note="with this value Tenon does the same")
        return FlagResult(flag=flag, outcome="different", note=note)
    return FlagResult(flag=flag, outcome="unknown", note="Tenon doesn't know this flag, and ignores it")


def _kept(flag: Flag, option: str) -> FlagResult:
    """The option, if Tenon can read its value; of several expanders those that Tenon has."""
    value = _normalised(option, flag.value)
    note = f"as {option}" if option != flag.name else ""
    if option == "expander":
        names = [name.strip() for name in value.split(",")]
        value = ",".join(name for name in names if name in options.EXPANDERS)
        missing = ", ".join(name for name in names if name not in options.EXPANDERS)
        if not value:
            note = f"Tenon doesn't have {missing}: the cheapest group grows"
            return FlagResult(flag=flag, outcome="different", note=note)
        notes = [f"without {missing}, which Tenon doesn't have"] if missing else []
        notes += ["random is as price: the cheapest group grows"] if "random" in names else []
        note = "; ".join(notes)
    _, problems = options.parse({option: value}, {})
    if problems:
        return FlagResult(flag=flag, outcome="different", note=f"{'; '.join(problems)}: Tenon's default holds")
    return FlagResult(flag=flag, outcome="kept", note=note, option=option, value=value)


def _normalised(option: str, value: str) -> str:
    """The value as Tenon reads it, where Go reads more."""
    value = value.strip()
    if options.FLAGS[option] is options.parse_share and _NUMBER.fullmatch(value):
        return f"{float(value):.6f}".rstrip("0").rstrip(".")
    if option in flag_notes.BOOLEAN:
        return _BOOLEANS.get(value, value)
    return value


def _same(value: str, default: str) -> bool:
    if value == default or _BOOLEANS.get(value) == default:
        return True
    try:
        return parse_duration(value) == parse_duration(default)
    except DurationError:
        return False


def _parsed(flags: Iterable[Flag], name: str, read_one: Callable[[str], T]) -> tuple[list[T], list[str]]:
    """The values of a flag that may be given several times, and what is wrong with others."""
    values: list[T] = []
    problems: list[str] = []
    for flag in flags:
        if flag.name == name:
            try:
                values.append(read_one(flag.value))
            except ValueError as error:
                problems.append(f"--{name}={flag.value} can't be read: {error}")
    return values, problems


def _named_group(value: str) -> NamedGroup:
    minimum, _, rest = value.partition(":")
    maximum, _, name = rest.partition(":")
    if not (minimum.isdecimal() and maximum.isdecimal() and name):
        raise ValueError("it isn't MIN:MAX:NAME")
    return NamedGroup(int(minimum), int(maximum), name)


def _tags(value: str) -> dict[str, str | None]:
    """The tags of ``asg:tag=KEY,KEY=VALUE``; None is any value."""
    prefix = "asg:tag="
    pairs = (tag.strip().partition("=") for tag in value.removeprefix(prefix).split(","))
    tags = {key: text if equals else None for key, equals, text in pairs if key}
    if not value.startswith(prefix) or not tags:
        raise ValueError("it isn't asg:tag=KEY,KEY=VALUE")
    return tags


def _invisible(last: Mapping[str, Flag]) -> str:
    for name, expected in _LEASE.items():
        if name == "namespace" and "leader-elect-resource-namespace" in last:
            continue
        if name in last and not _same(last[name].value, expected):
            return f"--{name}={last[name].value}"
    return ""
