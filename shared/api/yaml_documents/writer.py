"""YAML that kubectl reads back as the same values, as do other readers of YAML 1.1 and 1.2.

PyYAML writes ``y``, ``1e3`` and ``012345678901`` without quotes, and kubectl reads a boolean and numbers.
"""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING, Any

from shared.api.yaml_documents import scalars

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from shared.api.json_types import Json

_TAGS: dict[type, str] = {
    bool: "tag:yaml.org,2002:bool",
    int: "tag:yaml.org,2002:int",
    float: "tag:yaml.org,2002:float",
    type(None): "tag:yaml.org,2002:null",
}


def text(value: Json, *, sort_keys: bool = False, width: int = 80) -> str:
    """The document of a JSON value.

    >>> print(text({"on": "1e3", "at": "10:30", "op": "="}), end="")
    'on': '1e3'
    at: '10:30'
    op: '='
    """
    return _write([value], sort_keys=sort_keys, width=width, explicit_start=None)


def documents(values: Iterable[Any], *, width: int = 80) -> str:
    """The documents of JSON values, each after ``---``."""
    return _write(values, sort_keys=False, width=width, explicit_start=True)


def _write(values: Iterable[Any], **options: Any) -> str:  # noqa: ANN401 (PyYAML's options)
    return str(_dump_all()(values, **options))


@cache
def _dump_all() -> Callable[..., Any]:
    """PyYAML's function of that name, with a dumper of our own."""
    import yaml  # noqa: PLC0415 (slow to import, and functions import the kinds without needing YAML)

    class Dumper(yaml.SafeDumper):
        """Quotes what any reader takes for something else than text; anchors, which are hard to read, aren't used."""

        def resolve(self, kind: Any, value: Any, implicit: Any) -> Any:  # noqa: ANN401 (the base class's signature)
            if kind is yaml.ScalarNode and implicit[0]:
                tag = _TAGS.get(type(scalars.plain(value)))
                if tag is not None:
                    return tag
            return super().resolve(kind, value, implicit)  # type: ignore[no-untyped-call]  # PyYAML has no types  # type: ignore[no-untyped-call]

        def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 (the same)
            return True

    return partial(yaml.dump_all, Dumper=Dumper)
