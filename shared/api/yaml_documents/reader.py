"""The JSON values of a YAML text, as kubectl reads them from a file and the API server from a body.

Documents are separated by lines that begin with ``---``, before YAML is parsed; of each, only the first YAML document
counts. A text that begins with ``{`` is a stream of JSON objects, unless it can't be read so. The last of duplicate
keys counts; ``<<`` overrides keys before it. Sources: StreamVisitor of k8s.io/cli-runtime, YAMLOrJSONDecoder of
k8s.io/apimachinery, and go.yaml.in/yaml/v2.

Texts are parsed event by event, because libyaml's loader has no limit of nesting, and aliases can stand for any amount
of data.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NoReturn

from shared.api.yaml_documents import tree

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shared.api.json_types import Json

_SEPARATOR = re.compile(r"^---([^\n]*)(?:\n|\Z)", re.MULTILINE)
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_MAX_INT = 2**63
_MAX_DIGITS = 300
"""What a double can hold, as Go's JSON reads larger integers."""


class YamlError(ValueError):
    """The text is not YAML, or has no JSON; the message says where and why."""


def documents(text: str | bytes) -> list[Any]:
    r"""The documents as JSON values, without empty ones. Timestamps are text, keys are text.

    >>> documents("on: 10:30\n---\n---\n- =\n- 0o17\n- 1e3")
    [{'true': '10:30'}, ['=', 15, 1000]]

    Raises:
        YamlError: it can't be read; what precedes the error is not returned.
    """
    source = _text(text)
    if not source.lstrip().startswith("{"):
        return _yaml_documents(source, 0)
    values, end, problem = _json_documents(source)
    if not problem:
        return values
    if len(values) > 1:
        raise YamlError(problem)
    try:
        return [*values, *_yaml_documents(source[end:], source.count("\n", 0, end))]
    except YamlError as error:
        raise YamlError(f"{problem}; as YAML: {error}") from error


def document(text: str | bytes) -> Json:
    """The first YAML document of the text as a JSON value; None if it is empty.

    Raises:
        YamlError: it can't be read.
    """
    return _first_document(_text(text), 0, tree.Expansion())


def _text(text: str | bytes) -> str:
    if isinstance(text, str):
        return text
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        raise YamlError(f"not UTF-8 text: {error}") from error


def _json_documents(source: str) -> tuple[list[Any], int, str]:
    """The JSON objects at the beginning of the text, where they end, and why the next one can't be read."""
    decoder = json.JSONDecoder(parse_int=_json_integer, parse_constant=_refused_constant)
    values: list[Any] = []
    end = 0
    while rest := source[end:].lstrip():
        start = len(source) - len(rest)
        try:
            value, end = decoder.raw_decode(source, start)
        except ValueError as error:
            return values, _after_line_break(source, end), f"not JSON: {error}"
        except RecursionError:
            return values, end, "lists and maps are nested too deeply"
        values += [value] if value is not None else []
    if not _SURROGATE.search(source):
        return values, end, ""
    try:
        return [_well_formed(value) for value in values], end, ""
    except RecursionError:
        return [], end, "lists and maps are nested too deeply"


def _well_formed(value: Json) -> Json:
    """The value with U+FFFD for surrogates without a partner, as Go's JSON has it."""
    if isinstance(value, dict):
        return {_well_formed(key): _well_formed(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_well_formed(item) for item in value]
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace") if isinstance(value, str) else value


def _after_line_break(source: str, end: int) -> int:
    """Where the white space after the JSON ends, with the first line break at most."""
    blank = re.compile(r"[^\S\n]*\n?").match(source, end)
    return blank.end() if blank else end


def _json_integer(digits: str) -> int | float:
    if len(digits) > _MAX_DIGITS:
        raise ValueError("a number is too large")
    value = int(digits)
    return value if -_MAX_INT <= value < _MAX_INT else float(value)


def _refused_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a value of JSON")


def _yaml_documents(source: str, line: int) -> list[Any]:
    expansion = tree.Expansion()
    values = (_first_document(chunk, first, expansion) for chunk, first in _chunks(source, line))
    return [value for value in values if value is not None]


def _chunks(source: str, line: int) -> Iterator[tuple[str, int]]:
    """The texts between separators, and the number of lines before each."""
    start = 0
    for separator in _SEPARATOR.finditer(source):
        after = separator[1].strip()
        if after and not after.startswith("#"):
            line += source.count("\n", start, separator.start()) + 1
            raise YamlError(f"line {line}: invalid document separator: ---{separator[1].rstrip()}")
        # a separator without a text before it begins the text
        if separator.start() > start:
            yield source[start : separator.start()], line
            line += source.count("\n", start, separator.end())
            start = separator.end()
    # the last line may lack its end, which would change block scalars
    yield source[start:].removesuffix("\n") + "\n", line


def _first_document(chunk: str, line: int, expansion: tree.Expansion) -> Json:
    """The value of the first document; ``line`` lines of the text are before the chunk."""
    if not chunk or chunk.isspace():
        return None
    import yaml  # noqa: PLC0415 (slow to import, and functions import the kinds without needing YAML)

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return tree.first_value(yaml.parse(chunk, Loader=loader), expansion)
    except tree.TreeError as error:
        raise YamlError(f"line {line + error.line + 1}: {error}") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {line + mark.line + 1}: " if mark is not None else ""
        raise YamlError(f"{where}{error.problem or error.context}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise YamlError(str(error)) from error
