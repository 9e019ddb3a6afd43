from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.api.kubernetes import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from shared.api.meta import LabelSelector, LabelSelectorRequirement
from shared.api.selectors import SelectorError, format_selector, holds, matches, matches_node, parse_selector

words = st.from_regex(r"[a-z0-9]([-a-z0-9_.]{0,8}[a-z0-9])?", fullmatch=True).filter(lambda w: w not in {"in", "notin"})
labels = st.dictionaries(words, words, max_size=4)


@st.composite
def expressions(draw: st.DrawFn) -> LabelSelectorRequirement:
    operator = draw(st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]))
    values = draw(st.lists(words, min_size=1, max_size=3)) if operator in {"In", "NotIn"} else []
    return LabelSelectorRequirement(key=draw(words), operator=operator, values=values)


selectors = st.builds(LabelSelector, match_labels=labels, match_expressions=st.lists(expressions(), max_size=3))


def requirement(key: str, operator: str, *values: str) -> NodeSelectorRequirement:
    return NodeSelectorRequirement(key=key, operator=operator, values=list(values))


def test_no_selector_selects_nothing_and_an_empty_one_everything() -> None:
    assert not matches(None, {"a": "b"})
    assert matches(LabelSelector(), {"a": "b"})
    assert matches(LabelSelector(), {})


def test_notin_and_doesnotexist_hold_for_a_label_that_is_absent() -> None:
    assert holds(requirement("tier", "NotIn", "db"), {})
    assert holds(requirement("tier", "DoesNotExist"), {})
    assert not holds(requirement("tier", "In", "db"), {})
    assert not holds(requirement("tier", "Exists"), {})


@pytest.mark.parametrize(
    ("operator", "value", "expected"),
    [
        ("Gt", "4", False),
        ("Gt", "5", True),
        ("Lt", "3", True),
        ("Gte", "4", True),
        ("Lte", "4", True),
        ("Lte", "5", False),
    ],
)
def test_numbers_are_compared_as_integers(operator: str, value: str, *, expected: bool) -> None:
    assert holds(requirement("generation", operator, "4"), {"generation": value}) is expected


def test_a_value_that_is_no_integer_is_never_greater_or_less() -> None:
    assert not holds(requirement("cpu", "Gt", "4"), {"cpu": "many"})
    assert not holds(requirement("cpu", "Gt", "many"), {"cpu": "4"})
    assert not holds(requirement("cpu", "Gt"), {"cpu": "4"})
    assert not holds(requirement("cpu", "Gt", "1"), {})


def test_an_unknown_operator_is_reported_with_the_allowed_ones() -> None:
    with pytest.raises(SelectorError, match='"Like" is not an operator; allowed are In, NotIn'):
        matches(LabelSelector(match_expressions=[LabelSelectorRequirement(key="a", operator="Like")]), {})


def test_a_node_selector_needs_one_term_that_holds_and_an_empty_term_never_does() -> None:
    zone = NodeSelectorTerm(match_expressions=[requirement("zone", "In", "a")])
    name = NodeSelectorTerm(match_fields=[requirement("metadata.name", "In", "node-1")])
    assert matches_node(None, {})
    assert not matches_node(NodeSelector(), {"zone": "a"})
    assert not matches_node(NodeSelector(node_selector_terms=[NodeSelectorTerm()]), {"zone": "a"})
    assert matches_node(NodeSelector(node_selector_terms=[zone, name]), {"zone": "b"}, name="node-1")
    assert not matches_node(NodeSelector(node_selector_terms=[zone, name]), {"zone": "b"}, name="node-2")


@pytest.mark.parametrize(
    ("text", "labels", "expected"),
    [
        ("", {}, True),
        ("app=web", {"app": "web"}, True),
        ("app==web", {"app": "db"}, False),
        ("app!=web", {}, True),
        ("app", {"app": ""}, True),
        ("!app", {"app": ""}, False),
        ("! app", {}, True),
        ("env in (prod, dev),!spot", {"env": "dev"}, True),
        ("env notin (prod,dev)", {"env": "dev"}, False),
        ("env in ()", {"env": ""}, True),
        ("env in (,a)", {"env": ""}, True),
        ("env=", {"env": ""}, True),
        ("cpu>4", {"cpu": "8"}, True),
        ("cpu<4", {"cpu": "8"}, False),
        ("karpenter.sh/nodepool=default , a.b/c!=d", {"karpenter.sh/nodepool": "default"}, True),
    ],
)
def test_selector_text_means_what_kubectl_means(text: str, labels: dict[str, str], *, expected: bool) -> None:
    assert matches(parse_selector(text), labels) is expected


@pytest.mark.parametrize(
    "text",
    ["=a", "a=b,", ",a", "a in b", "a in (b", "a in (b c)", "a ~ b", "a>x", "a b", "!", "a=b c", "a in ((b))", "a("],
)
def test_text_that_is_no_selector_is_refused_with_the_text(text: str) -> None:
    with pytest.raises(SelectorError, match="is not a label selector"):
        parse_selector(text)


@given(selectors, labels)
def test_a_selector_written_as_text_selects_the_same(selector: LabelSelector, given_labels: dict[str, str]) -> None:
    assert matches(parse_selector(format_selector(selector)), given_labels) == matches(selector, given_labels)


@given(st.text(alphabet="ab=!,() innot<>4~ ", max_size=20))
def test_any_text_is_a_selector_or_refused(text: str) -> None:
    try:
        selector = parse_selector(text)
    except SelectorError:
        return
    matches(selector, {})


@given(expressions(), labels)
def test_opposite_operators_never_agree(expression: LabelSelectorRequirement, given_labels: dict[str, str]) -> None:
    opposite = {"In": "NotIn", "NotIn": "In", "Exists": "DoesNotExist", "DoesNotExist": "Exists"}[expression.operator]
    negation = LabelSelectorRequirement(key=expression.key, operator=opposite, values=expression.values)
    assert holds(expression, given_labels) != holds(negation, given_labels)
