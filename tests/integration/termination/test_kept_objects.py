"""What termination and garbage collection leave alone: nodes that they can't read, and those of other NodeClaims."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from local.kubernetes import kinds
from local.kubernetes.registry import published_types
from shared.api import labels as names

if TYPE_CHECKING:
    import pytest

    from tests.integration.termination.conftest import Environment


def test_a_node_that_cannot_be_decoded_keeps_its_nodeclaim(env: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    instance = env.a_node("old")
    env.pod("web", "old")
    with monkeypatch.context() as lenient:  # as a server would be that knows other types of fields
        lenient.setattr(published_types, "decode", lambda _kind, obj, _before=None: obj)
        conditions = [{"type": "Ready", "status": "True", "lastTransitionTime": "yesterday"}]
        env.store.patch(kinds.NODES, "old", {"status": {"conditions": conditions}}, subresource="status")
    env.turn(3600)
    env.settle(minutes=3)
    assert [c["metadata"]["name"] for c in env.claims()] == ["claim-old"]
    assert env.states()[instance] == "running"
    assert [p["metadata"]["name"] for p in env.pods()] == ["web"]


def test_a_nodeclaim_whose_nodes_name_was_taken_over_leaves_the_new_node_alone(env: Environment) -> None:
    former, provider_id = env.instance(**{names.NODECLAIM_TAG: "claim-former"})
    env.claim("claim-former", provider_id, node="shared")
    current = env.a_node("shared")
    env.pod("web", "shared")
    env.delete("claim-former")
    env.run(limit=timedelta(hours=1))
    assert [c["metadata"]["name"] for c in env.claims()] == ["claim-shared"]
    assert [p["metadata"]["name"] for p in env.pods()] == ["web"]
    assert (env.states()[former], env.states()[current]) == ("terminated", "running")
    (node,) = env.nodes()
    assert "karpenter.sh/disrupted" not in {taint["key"] for taint in node["spec"].get("taints", [])}


def test_a_nodeclaim_stays_until_the_finalizers_of_others_have_left_its_node(env: Environment) -> None:
    env.a_node("old")
    finalizers = [*env.nodes()[0]["metadata"].get("finalizers", []), "example.com/held"]
    env.store.patch(kinds.NODES, "old", {"metadata": {"finalizers": finalizers}})

    env.delete("claim-old")
    env.run(limit=timedelta(minutes=10))

    (node,), (claim,) = env.nodes(), env.claims()
    assert node["metadata"]["deletionTimestamp"]
    assert node["metadata"]["finalizers"] == ["example.com/held"]
    assert claim["metadata"]["deletionTimestamp"]

    env.store.patch(kinds.NODES, "old", {"metadata": {"finalizers": []}})
    env.run(limit=timedelta(minutes=10))

    assert (env.nodes(), env.claims()) == ([], [])


def test_unused_launch_templates_are_looked_up_once_an_hour(env: Environment) -> None:
    env.settle(minutes=5)
    assert env.calls.count("DescribeLaunchTemplates") == 1
    env.turn(3600)
    env.reconcile()
    assert env.calls.count("DescribeLaunchTemplates") == 2


def test_a_nodeclaim_whose_node_is_ready_is_kept_whatever_ec2_answers(env: Environment) -> None:
    instance = env.a_node("old")
    env.turn(60)
    with env.unknown_instances(instance):
        env.settle(minutes=10)
    assert "deletionTimestamp" not in env.stored_claim("claim-old")["metadata"]
    assert all(c["type"] != "GarbageCollectable" for c in env.stored_claim("claim-old")["status"]["conditions"])
    assert env.states()[instance] == "running"
