"""The merge patch of a changed object."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from shared.cluster.writes import merge_patch

leaves = st.one_of(
    st.booleans(), st.integers(-3, 3), st.text("ab", max_size=2), st.lists(st.integers(0, 2), max_size=2)
)
objects = st.recursive(
    st.dictionaries(st.sampled_from("abc"), leaves, max_size=3),
    lambda inner: st.dictionaries(st.sampled_from("abc"), st.one_of(leaves, inner), max_size=3),
    max_leaves=8,
)


def applied(target: object, patch: object) -> Any:
    """RFC 7386, section 2."""
    if not isinstance(patch, dict):
        return patch
    result: dict[Any, Any] = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = applied(result.get(key), value)
    return result


@given(objects, objects)
def test_a_merge_patch_transforms_one_object_into_the_other(before: dict[str, Any], after: dict[str, Any]) -> None:
    assert applied(before, merge_patch(before, after)) == after


@given(objects)
def test_nothing_is_sent_when_nothing_changes(value: dict[str, Any]) -> None:
    assert merge_patch(value, value) == {}


@given(objects, objects)
def test_unchanged_fields_are_not_sent(before: dict[str, Any], after: dict[str, Any]) -> None:
    patch = merge_patch(before, after)
    assert not {key for key in patch if key in before and key in after and before[key] == after[key]}
