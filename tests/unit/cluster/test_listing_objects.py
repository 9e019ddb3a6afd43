"""Decoding listed objects, and the API paths of kinds."""

from __future__ import annotations

import json

import pytest

from shared.api.kubernetes import Pod
from shared.api.storage import CSINode
from shared.cluster import resources
from shared.cluster.listing import decode
from shared.snapshot import InvalidObject


def test_an_invalid_object_is_returned_with_the_reason() -> None:
    raw = json.dumps({"metadata": {"name": "a", "namespace": "b", "uid": "u"}, "spec": {"nodeName": 7}}).encode()
    decoded = decode(raw, resources.PODS, Pod)
    assert isinstance(decoded, InvalidObject)
    assert str(decoded.ref) == "Pod b/a"
    assert decoded.ref.uid == "u"
    assert "spec.nodeName" in decoded.problems[0]


def test_a_null_list_is_empty() -> None:
    decoded = decode(b'{"metadata":{"name":"n"},"spec":{"drivers":null}}', resources.CSI_NODES, CSINode)
    assert isinstance(decoded, CSINode)
    assert decoded.spec.drivers == []


def test_paths_are_those_of_the_api() -> None:
    assert resources.PODS.path() == "/api/v1/pods"
    assert resources.PODS.path("a", namespace="b", subresource="eviction") == "/api/v1/namespaces/b/pods/a/eviction"
    assert resources.NODE_POOLS.path("p", subresource="status") == "/apis/karpenter.sh/v1/nodepools/p/status"
    assert resources.for_kind("karpenter.sh/v1alpha5", "Provisioner") is resources.PROVISIONERS


def test_a_pods_path_needs_a_namespace() -> None:
    with pytest.raises(ValueError, match="needs a namespace"):
        resources.PODS.path("a")
    with pytest.raises(ValueError, match="is cluster-scoped"):
        resources.NODES.path("a", namespace="b")
