"""No problems means that the rest of the code may rely on the object: everything in it can be read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st

from shared.api.cron import parse_cron
from shared.api.decode import node_class, node_pool
from shared.api.duration import parse_duration
from shared.api.kubernetes import OPERATORS
from shared.api.labels import normalize_key
from shared.api.quantity import parse_resources
from shared.api.selectors import holds
from shared.api.validation.nodepool import validate_node_pool

if TYPE_CHECKING:
    from shared.api.nodepool import NodePool

scraps = st.sampled_from(
    ["", "0", "1", "10%", "30s", "1h", "8h", "Never", "1.5", "-1", "5Gi", "2x", "@daily", "* * * * *"]
)
texts = scraps | st.text(max_size=6)
keys = st.sampled_from(
    ["team", "kubernetes.io/arch", "karpenter.sh/capacity-type", "beta.kubernetes.io/os", "-", "a/b"]
)
requirements = st.fixed_dictionaries(
    {"key": keys, "operator": st.sampled_from(OPERATORS)},
    optional={"values": st.lists(texts, max_size=2), "minValues": st.integers(-1, 60)},
)
quantities = st.dictionaries(st.sampled_from(["cpu", "memory", "nodes"]), texts | st.integers(-5, 10**12), max_size=2)
budgets = st.fixed_dictionaries({"nodes": texts}, optional={"schedule": texts, "duration": texts})


def valid_pool(template: dict[str, Any] | None = None, **spec: object) -> NodePool | None:
    whole = {"template": {"spec": {"nodeClassRef": {"name": "c"}, **(template or {})}}, **spec}
    return node_pool(
        {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "p"}, "spec": whole}
    ).value


@given(texts)
def test_durations_of_a_valid_pool_can_be_read(text: str) -> None:
    if pool := valid_pool({"expireAfter": text}, disruption={"consolidateAfter": text}):
        parse_duration(pool.spec.template.spec.expire_after)
        parse_duration(pool.spec.disruption.consolidate_after)


@given(quantities)
def test_limits_of_a_valid_pool_are_quantities_of_zero_or_more(limits: dict[str, Any]) -> None:
    if pool := valid_pool(limits=limits):
        assert all(amount >= 0 for amount in parse_resources(pool.spec.limits).values())


@given(requirements)
def test_requirements_of_a_valid_pool_can_be_judged(requirement: dict[str, Any]) -> None:
    if pool := valid_pool({"requirements": [requirement]}):
        (decoded,) = pool.spec.template.spec.requirements
        holds(decoded, {decoded.key: "1"})
        assert decoded.min_values is None or 1 <= decoded.min_values <= 50


@given(budgets)
def test_budgets_of_a_valid_pool_can_be_read(budget: dict[str, Any]) -> None:
    if pool := valid_pool(disruption={"budgets": [budget]}):
        (decoded,) = pool.spec.disruption.budgets
        assert int(decoded.nodes.removesuffix("%")) >= 0
        assert (decoded.schedule is None) == (decoded.duration is None)
        if decoded.schedule is not None and decoded.duration is not None:
            parse_cron(decoded.schedule)
            assert parse_duration(decoded.duration)


@given(st.lists(requirements, max_size=3), quantities, st.none() | st.integers(0, 100), st.none() | st.integers(0, 100))
def test_a_valid_provisioner_becomes_a_valid_pool(
    given_requirements: list[dict[str, Any]], limits: dict[str, Any], empty: int | None, expired: int | None
) -> None:
    spec = {
        "providerRef": {"name": "t"},
        "requirements": given_requirements,
        "limits": {"resources": limits},
        "ttlSecondsAfterEmpty": empty,
        "ttlSecondsUntilExpired": expired,
    }
    raw = {"apiVersion": "karpenter.sh/v1alpha5", "kind": "Provisioner", "metadata": {"name": "p"}, "spec": spec}
    pool = node_pool(raw).value
    if pool is None:
        return
    own = ("spec.template.metadata.labels.karpenter.sh/provisioner-name", "spec.template.spec.nodeClassRef.kind")
    assert [problem for problem in validate_node_pool(pool) if not problem.startswith(own)] == []
    assert {normalize_key(r.key) for r in pool.spec.template.spec.requirements} >= {
        "kubernetes.io/os",
        "kubernetes.io/arch",
        "karpenter.sh/capacity-type",
    }


selectors = st.dictionaries(
    st.sampled_from(["Name", "tier", "aws-ids", "aws::ids"]),
    st.sampled_from(["a", "a,b", "", "*", "subnet-1,subnet-2"]),
)


@given(selectors)
def test_every_term_of_a_converted_selector_selects_something(selector: dict[str, str]) -> None:
    spec = {"subnetSelector": selector, "securityGroupSelector": {"a": "b"}}
    raw = {
        "apiVersion": "karpenter.k8s.aws/v1alpha1",
        "kind": "AWSNodeTemplate",
        "metadata": {"name": "t"},
        "spec": spec,
    }
    converted = node_class(raw).value
    if converted is None:
        return
    assert converted.spec.subnet_selector_terms
    assert all(term.id or term.tags for term in converted.spec.subnet_selector_terms)
    assert all(value for term in converted.spec.subnet_selector_terms for value in term.tags.values())
