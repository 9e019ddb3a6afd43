"""Which objects a selector selects."""

from __future__ import annotations

import pytest

from local.kubernetes import kinds, selectors
from local.kubernetes.errors import ApiError

_LABELS = {"app": "web", "tier": "front", "weight": "10"}


@pytest.mark.parametrize(
    ("text", "selected"),
    [
        ("", True),
        ("app=web", True),
        ("app==web,tier=front", True),
        ("app=api", False),
        ("app!=api", True),
        ("missing!=x", True),
        ("app in (web, api)", True),
        ("app notin (web,api)", False),
        ("missing notin (x)", True),
        ("app,!missing", True),
        ("!app", False),
        ("missing", False),
        ("weight>9,weight<11", True),
        ("app>9", False),
        ("app in (web),tier notin (back),!zone", True),
    ],
)
def test_label_selectors_select_as_in_kubernetes(text: str, selected: bool) -> None:  # noqa: FBT001 (a table's column)
    assert selectors.matches(selectors.parse_labels(text), _LABELS) is selected


@pytest.mark.parametrize("text", ["app in web", "a=b=c", "==", "app in (a", "a b"])
def test_a_malformed_label_selector_is_refused(text: str) -> None:
    with pytest.raises(ApiError) as refused:
        selectors.parse_labels(text)
    assert refused.value.status == 400


def test_an_empty_selector_object_selects_everything_and_none_selects_nothing() -> None:
    assert selectors.parse_label_selector({}) == ()
    assert selectors.parse_label_selector(None) is None


def test_a_field_selector_reads_pods_by_node_and_phase() -> None:
    selected = selectors.predicate(kinds.PODS, "", "spec.nodeName=,status.phase!=Failed")
    assert selected is not None
    assert selected({"metadata": {"name": "a"}, "spec": {}, "status": {"phase": "Pending"}})
    assert not selected({"metadata": {"name": "a"}, "spec": {"nodeName": "n"}, "status": {}})


def test_a_field_that_a_kind_cannot_be_selected_by_is_refused() -> None:
    with pytest.raises(ApiError, match=r"field label not supported: spec\.containers"):
        selectors.parse_fields(kinds.PODS, "spec.containers=x")
