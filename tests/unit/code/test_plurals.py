"""Sentences for users count with `plural`, so that none says "1 pods"."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

import pytest

from shared.base.plurals import plural
from tests.unit.code import source

if TYPE_CHECKING:
    from collections.abc import Iterator

NOUNS = (
    "addresses|buffers|calls|chunks|clusters|decisions|entries|events|fields|functions|groups|instances|launches|"
    "machines|messages|nodes|NodeClaims|NodePools|objects|offerings|pods|pools|reasons|replicas|rounds|subnets|terms|"
    "types|values|volumes"
)
COUNTED = re.compile(rf" ((more|new|other|spot|instance|existing) )*({NOUNS})\b")
PACKAGES = ("cli", "functions", "infra", "relay", "shared")
NEVER_ONE = {
    "MAX_EXPANDED",  # a constant above one
}
ONLY_SEVERAL = {
    "shared/scheduling/nominations/displacements.py",  # says "in a row", which is more than one
    "functions/lifecycle/statuses/capacity_buffer_status.py",  # has a sentence of its own for one chunk
    "shared/termination/drain.py",  # the same for one pod
    "cli/explain/pod_constraints.py",  # the same for one term
    "shared/scheduling/results/explanation.py",  # "on all 2 NodePools": one NodePool has a sentence of its own
}


@pytest.mark.parametrize(
    ("count", "noun", "text"),
    [
        (0, "pod", "0 pods"),
        (1, "pod", "1 pod"),
        (1, "entry", "1 entry"),
        (2, "entry", "2 entries"),
        (2, "day", "2 days"),
        (3, "launch", "3 launches"),
        (2, "address", "2 addresses"),
        (1200, "instance type", "1,200 instance types"),
    ],
)
def test_plural(count: int, noun: str, text: str) -> None:
    assert plural(count, noun) == text


def _counted(text: ast.JoinedStr) -> Iterator[str]:
    for value, after in zip(text.values, text.values[1:], strict=False):
        if (
            isinstance(value, ast.FormattedValue)
            and isinstance(after, ast.Constant)
            and COUNTED.match(str(after.value))
            and not {n.id for n in ast.walk(value.value) if isinstance(n, ast.Name)} & NEVER_ONE
            and not isinstance(value.value, ast.Constant)
        ):
            yield f"{ast.unparse(value.value)}{after.value!s}"


def test_no_sentence_counts_without_plural() -> None:
    misses = [
        f"{source.name(path)}:{node.lineno}: {text}"
        for path in source.modules(*PACKAGES)
        if source.name(path) not in ONLY_SEVERAL
        for node in ast.walk(source.syntax(path))
        if isinstance(node, ast.JoinedStr)
        for text in _counted(node)
    ]
    assert misses == []
