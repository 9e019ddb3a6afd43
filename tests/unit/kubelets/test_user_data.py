"""The kubelet configuration in user data, and user data with which a machine does not join."""

from __future__ import annotations

import pytest

from local.kubelets.kubelet_configuration import JoinError, KubeletConfiguration
from local.kubelets.user_data import kubelet_configuration
from shared.ami_family.bootstrap import Bootstrap
from shared.ami_family.families import FAMILIES, render_user_data
from shared.api.kubernetes import Taint
from shared.base.struct import with_fields
from shared.cluster.connect import ClusterInfo

CLUSTER = ClusterInfo(
    name="demo",
    endpoint="https://ABC.eks.amazonaws.com",
    certificate_authority="LS0tLS1CRUdJTg==",
    version="1.34",
    service_cidr="10.100.0.0/16",
    region="us-east-1",
)
NODE_CONFIG = """\
apiVersion: node.eks.aws/v1alpha1
kind: NodeConfig
spec:
  cluster:
    name: demo
    apiServerEndpoint: https://ABC.eks.amazonaws.com
    certificateAuthority: LS0tLS1CRUdJTg==
    cidr: 10.100.0.0/16
"""
BOTTLEROCKET = """\
[settings.kubernetes]
cluster-name = "demo"
api-server = "https://ABC.eks.amazonaws.com"
cluster-certificate = "LS0tLS1CRUdJTg=="
"""


def settings(user_data: str) -> KubeletConfiguration:
    return kubelet_configuration(user_data, CLUSTER)


def join_error(user_data: str) -> str:
    with pytest.raises(JoinError) as refused:
        settings(user_data)
    return str(refused.value)


@pytest.mark.parametrize("family", ["AL2", "AL2023", "Bottlerocket"])
def test_machines_of_tenon_join_with_their_labels_taints_and_limits(family: str) -> None:
    boot = Bootstrap(
        cluster=CLUSTER,
        labels={"karpenter.sh/nodepool": "default", "team": "a"},
        taints=(
            Taint(key="karpenter.sh/unregistered", effect="NoExecute"),
            Taint(key="team", value="a", effect="NoSchedule"),
        ),
        kubelet={"maxPods": 42, "kubeReserved": {"cpu": "200m"}, "evictionHard": {"memory.available": "5%"}},
    )
    read = settings(render_user_data(FAMILIES[family], boot))
    assert read.labels == {"karpenter.sh/nodepool": "default", "team": "a"}
    assert sorted(read.taints, key=lambda t: t["key"]) == [
        {"key": "karpenter.sh/unregistered", "effect": "NoExecute"},
        {"key": "team", "value": "a", "effect": "NoSchedule"},
    ]
    assert read.max_pods == 42
    assert read.kube_reserved == {"cpu": "200m"}
    assert read.eviction_hard == {"memory.available": "5%"}


@pytest.mark.parametrize("family", ["AL2", "AL2023", "Bottlerocket"])
def test_instance_storage_for_pods_is_recognised(family: str) -> None:
    assert settings(render_user_data(FAMILIES[family], Bootstrap(cluster=CLUSTER, raid=True))).raid0


@pytest.mark.parametrize("family", ["AL2", "AL2023", "Bottlerocket"])
@pytest.mark.parametrize("field", ["name", "endpoint", "certificate_authority"])
def test_user_data_of_another_cluster_is_refused(family: str, field: str) -> None:
    another_cluster = with_fields(CLUSTER, **{field: "other"})
    assert '"other", not' in join_error(render_user_data(FAMILIES[family], Bootstrap(cluster=another_cluster)))


def test_a_minimal_node_config_is_accepted() -> None:
    assert settings(NODE_CONFIG).max_pods is None


def test_nodeadm_needs_the_service_cidr() -> None:
    assert (
        join_error(NODE_CONFIG.replace("    cidr: 10.100.0.0/16\n", ""))
        == "the service CIDR in the user data is missing"
    )


def test_later_node_configs_take_precedence_and_flags_are_appended() -> None:
    parts = [
        NODE_CONFIG + '  kubelet:\n    flags: ["--node-labels=a=1"]\n    config: {maxPods: 10}\n',
        "apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec:\n  kubelet:\n    config: {maxPods: 20}\n",
    ]
    body = "".join(f"--B\nContent-Type: application/node.eks.aws\n\n{part}\n" for part in parts)
    read = settings(f'MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="B"\n\n{body}--B--\n')
    assert (read.max_pods, read.labels) == (20, {"a": "1"})


def test_bootstrap_needs_neither_endpoint_nor_authority() -> None:
    script = (
        "#!/bin/bash\n/etc/eks/bootstrap.sh demo \\\n  --kubelet-extra-args '--node-labels=a=1,b=2 --max-pods=17'\n"
    )
    read = settings(script)
    assert (read.labels, read.max_pods) == ({"a": "1", "b": "2"}, 17)


def test_bottlerocket_settings_are_accepted() -> None:
    extra = '[settings.kubernetes.node-taints]\nteam = ["a:NoSchedule", "b:NoExecute"]\n'
    assert settings(BOTTLEROCKET + extra).taints == (
        {"key": "team", "effect": "NoSchedule", "value": "a"},
        {"key": "team", "effect": "NoExecute", "value": "b"},
    )


@pytest.mark.parametrize(
    ("user_data", "reason"),
    [
        ("", "no user data, so no kubelet is started"),
        ("#!/bin/bash\necho hello\n", "has no nodeadm NodeConfig, no call of bootstrap.sh and no Bottlerocket TOML"),
        ("#!/bin/bash\n# /etc/eks/bootstrap.sh demo\n", "the script names bootstrap.sh but doesn't call it"),
        (NODE_CONFIG.replace("v1alpha1", "v9"), "nodeadm accepts only kind NodeConfig of"),
        (NODE_CONFIG + "  kubelet: [\n", "the NodeConfig is invalid"),
        (BOTTLEROCKET + "x = ", "Bottlerocket's settings are invalid TOML"),
        (NODE_CONFIG + "  kubelet:\n    config: {maxPods: many}\n", 'maxPods is "many", not an integer'),
        (NODE_CONFIG + '  kubelet:\n    flags: ["--register-with-taints=team"]\n', '"team" is not a taint'),
    ],
)
def test_invalid_user_data_gives_the_reason(user_data: str, reason: str) -> None:
    assert reason in join_error(user_data)


@pytest.mark.parametrize(
    ("label", "joins"),
    [
        ("team=a", True),
        ("karpenter.k8s.aws/instance-cpu=2", True),
        ("node.kubernetes.io/role=web", True),
        ("topology.kubernetes.io/zone=a", True),
        ("node-role.kubernetes.io/web=", False),
        ("kubernetes.io/team=a", False),
        ("example.k8s.io/team=a", False),
    ],
)
def test_a_kubelet_does_not_start_with_reserved_labels(label: str, *, joins: bool) -> None:
    user_data = NODE_CONFIG + f'  kubelet:\n    flags: ["--node-labels={label}"]\n'
    if joins:
        assert settings(user_data).labels
    else:
        assert "unknown 'kubernetes.io' or 'k8s.io' labels" in join_error(user_data)
