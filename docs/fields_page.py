"""The pages of the ledger of fields: a table on the page of compatibility, and a page with every field."""

from __future__ import annotations

from typing import TYPE_CHECKING

from docs.fields import ledger, schemas
from docs.markdown import table

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from docs.fields.schemas import Field, Schemas

_PRODUCTS = {"kubernetes": "Kubernetes", "karpenter": "Karpenter"}
_BEGIN, _END = "<!-- fields: written by docs/fields_page.py -->", "<!-- fields: end -->"
_TITLES: dict[ledger.Group, str] = {
    "read": "Read by",
    "unsupported": "Not supported, and named to the user",
    "ignored": "Doesn't matter, because",
}


def page() -> str:
    """Every decision, by kind."""
    lines = [
        "# Fields",
        "",
        (
            "What Tenon does with each field that Kubernetes and Karpenter publish. `some.prefix.*` stands for all "
            "fields below it, "
            "`[]` for the items of a list, `{}` for the values of a map. Types that several kinds have are "
            "listed once."
        ),
    ]
    for name, title in _PRODUCTS.items():
        published = schemas.load(name)
        lines += ["", f"## {title} {', '.join(published.sources)}"]
        for kind in _kinds(published):
            lines += _kind(kind, published)
    return "\n".join(lines)


def with_table(path: Path) -> str:
    """The page of compatibility with the table between its marks.

    Raises:
        ValueError: the page has no marks.
    """
    text = path.read_text(encoding="utf-8")
    before, begin, rest = text.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise ValueError(f"{path} has no {_BEGIN}")
    return "\n".join([before + begin, "", *_summary(), "", end + after])


def _summary() -> Iterator[str]:
    for name, title in _PRODUCTS.items():
        published = schemas.load(name)
        newest = list(published.sources)[-1]
        rows = [
            (f"[{kind}](reference/fields.md#{kind.lower()})", *_counts(published.fields(newest), kind))
            for kind in _kinds(published)
        ]
        yield from table((f"{title} {newest}", "read", "not supported, named", "don't matter"), rows)
        yield ""
    named = [
        (d.kind, f"`{d.pattern}`", d.why.partition(" (shared/")[0])
        for d in ledger.decisions()
        if d.group == "unsupported"
    ]
    yield from table(("", "not supported", "what says so"), named)


def _counts(fields: tuple[Field, ...], kind: str) -> tuple[int, ...]:
    """How many fields of the kind are in each group."""
    groups = [d.group for f in fields if f.kind == kind for d in ledger.deciding(f)]
    return tuple(groups.count(group) for group in ledger.GROUPS)


def _kinds(published: Schemas) -> list[str]:
    """The kinds with decisions, in order."""
    decided = {d.kind for d in ledger.decisions()}
    return sorted({f.kind for f in published.fields()} & decided)


def _kind(kind: str, published: Schemas) -> Iterator[str]:
    yield from ("", f"### {kind}", "")
    listed = set(_kinds(published))
    types = sorted({(f.path, f.type) for f in published.fields() if f.kind == kind and f.type in listed})
    if types:
        yield from (
            "Of a type below: " + ", ".join(f"`{path}` ([{type_}](#{type_.lower()}))" for path, type_ in types) + ".",
            "",
        )
    rows = []
    for group, title in _TITLES.items():
        patterns: dict[str, list[str]] = {}
        for decision in ledger.decisions():
            if (decision.kind, decision.group) == (kind, group):
                patterns.setdefault(decision.why, []).append(f"`{decision.pattern}`")
        rows += [(title, f"`{why}`" if group == "read" else why, ", ".join(fields)) for why, fields in patterns.items()]
    yield from table(("", "", "fields"), rows)
