"""The first object is applied once the cluster knows the access entry of the role that applies it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from infra import assembly
from infra.cluster.kubernetes import administrator_wait
from local.kubernetes.apiserver.http import Response
from tests.infra import custom_resource_deployment
from tests.infra.test_infra_kubectl_apply import MANIFEST, depends

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.infra.custom_resource_deployment import Deployment

TYPE = "Custom::TenonAdministratorWait"
ADMINISTRATOR = [
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "administrator"},
        "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}],
    },
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "administrator"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "administrator"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "tenon:administrator"}],
    },
]
"""What the access policy of a cluster administrator allows."""


@pytest.fixture
def deployment(monkeypatch: pytest.MonkeyPatch) -> Iterator[Deployment]:
    with custom_resource_deployment.deployment(
        monkeypatch, administrator_wait.handle, access=ADMINISTRATOR, group="administrator"
    ) as running:
        yield running


@pytest.mark.parametrize("status", [401, 403])
def test_it_waits_until_the_cluster_knows_the_access_entry_and_its_policy(deployment: Deployment, status: int) -> None:
    denials = [Response(status), Response(status)]
    deployment.server.intercept = lambda _: denials.pop() if denials else None
    assert deployment.request("Create", TYPE)["Status"] == "SUCCESS"
    assert denials == []


def test_a_cluster_that_never_lets_the_role_in_fails_the_deployment(deployment: Deployment) -> None:
    deployment.server.intercept = lambda _: Response(401)
    answer = deployment.request("Create", TYPE)
    assert answer["Status"] == "FAILED"
    assert "doesn't let the deployment's role in (HTTPError: HTTP Error 401" in answer["Reason"]
    assert "-c clusterSide=printed" in answer["Reason"]
    assert deployment.request("Delete", TYPE)["Status"] == "SUCCESS"


@pytest.mark.parametrize("context", [{}, {"kinds": "kept"}, {"relay": "webhook"}])
def test_every_object_is_applied_after_the_wait_by_the_same_role(context: dict[str, str]) -> None:
    options = {"bundle": "source", **context}
    folder = assembly.cached(cluster="demo", root=assembly.CHECKOUT, context=options)
    resources: dict[str, dict[str, Any]] = json.loads((folder / "tenon-demo.template.json").read_text())["Resources"]
    ((id_, wait),) = ((id_, r) for id_, r in resources.items() if r["Type"] == TYPE)
    (entry,) = (
        id_
        for id_, r in resources.items()
        if r["Type"] == "AWS::EKS::AccessEntry" and r["Properties"].get("AccessPolicies")
    )
    assert entry in wait["DependsOn"]
    function = resources[wait["Properties"]["ServiceToken"]["Fn::GetAtt"][0]]
    assert function["Properties"]["Role"] == resources[entry]["Properties"]["PrincipalArn"]
    for resource in resources.values():
        if resource["Type"] == MANIFEST:
            assert id_ in depends(resources, resource)
