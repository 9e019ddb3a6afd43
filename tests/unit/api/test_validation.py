from __future__ import annotations

from typing import Any

import pytest

from shared.api.decode import node_claim, node_class, node_pool

ZONE = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["a"]}


def pool_problems(template: dict[str, Any] | None = None, **spec: object) -> tuple[str, ...]:
    inner = {"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}}
    whole = {"template": {"spec": {**inner, **(template or {})}}, **spec}
    return node_pool(
        {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "p"}, "spec": whole}
    ).problems


def class_problems(**spec: object) -> tuple[str, ...]:
    whole = {
        "role": "nodes",
        "amiSelectorTerms": [{"alias": "al2023@latest"}],
        "subnetSelectorTerms": [{"tags": {"a": "b"}}],
        "securityGroupSelectorTerms": [{"tags": {"a": "b"}}],
        **spec,
    }
    return node_class(
        {"apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": "c"}, "spec": whole}
    ).problems


def requirement_problems(*requirements: dict[str, Any]) -> tuple[str, ...]:
    return pool_problems({"requirements": list(requirements)})


def only(problems: tuple[str, ...], start: str) -> bool:
    assert len(problems) == 1, problems
    assert problems[0].startswith(start), problems[0]
    return True


def test_a_plain_pool_and_class_have_no_problems() -> None:
    assert pool_problems({"requirements": [ZONE]}) == ()
    assert class_problems() == ()
    assert class_problems(role=None) == ()


@pytest.mark.parametrize(
    ("requirement", "problem"),
    [
        ({"operator": "Like", "values": ["a"]}, 'operator: "Like" is not allowed; allowed are In, NotIn, Exists'),
        ({"operator": "In"}, "values: is empty; In needs at least one value"),
        ({"operator": "NotIn", "values": []}, "values: is empty; NotIn needs at least one value"),
        ({"operator": "Exists", "values": ["a"]}, 'values: ["a"] is not allowed; Exists takes no values'),
        ({"operator": "DoesNotExist", "values": ["a"]}, 'values: ["a"] is not allowed'),
        ({"operator": "Gt", "values": ["4", "5"]}, 'values: ["4", "5"] is not allowed; Gt needs exactly one integer'),
        ({"operator": "Lt", "values": ["four"]}, 'values: ["four"] is not allowed; Lt needs exactly one integer'),
        ({"operator": "Gte", "values": []}, "values: [] is not allowed; Gte needs exactly one integer"),
        ({"operator": "Lte", "values": ["-1"]}, 'values: ["-1"] is not allowed'),
        ({"operator": "In", "values": ["a b"]}, 'values[0]: "a b" is not a label value'),
        ({"operator": "In", "values": ["a"], "minValues": 0}, "minValues: 0 is not allowed; allowed is 1 to 50"),
        ({"operator": "Exists", "minValues": 51}, "minValues: 51 is not allowed; allowed is 1 to 50"),
        ({"operator": "In", "values": ["a", "a"], "minValues": 2}, "minValues: 2 is more than the 1 value given"),
        ({"key": "-x", "operator": "Exists"}, 'key: "-x" is not a label key'),
        ({"key": "a/b/c", "operator": "Exists"}, 'key: "a/b/c" is not a label key'),
        ({"key": "x" * 64, "operator": "Exists"}, f'key: "{"x" * 64}" is not a label key'),
        ({"key": "kubernetes.io/hostname", "operator": "Exists"}, 'key: "kubernetes.io/hostname" is restricted'),
        ({"key": "karpenter.sh/nodepool", "operator": "Exists"}, 'key: "karpenter.sh/nodepool" is restricted'),
        ({"key": "karpenter.sh/provisioner-name", "operator": "Exists"}, 'key: "karpenter.sh/provisioner-name"'),
        ({"key": "karpenter.sh/initialized", "operator": "Exists"}, 'key: "karpenter.sh/initialized" is restricted'),
        ({"key": "sub.kubernetes.io/x", "operator": "Exists"}, 'key: "sub.kubernetes.io/x" is restricted'),
        ({"key": "x.k8s.io/y", "operator": "Exists"}, 'key: "x.k8s.io/y" is restricted'),
        (
            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["Spot"]},
            'values: ["Spot"] matches no node; known values of karpenter.sh/capacity-type are spot, on-demand',
        ),
    ],
)
def test_a_bad_requirement_is_reported_by_field(requirement: dict[str, Any], problem: str) -> None:
    given = {"key": "example.com/team", **requirement}
    assert only(requirement_problems(ZONE, given), f"spec.template.spec.requirements[1].{problem}")


@pytest.mark.parametrize(
    "key",
    [
        "node.kubernetes.io/windows-build",
        "team.node-restriction.kubernetes.io/x",
        "kops.k8s.io/instancegroup",
        "karpenter.k8s.aws/instance-cpu",
        "karpenter.sh/capacity-spread",
        "topology.k8s.aws/zone-id",
        "beta.kubernetes.io/arch",
        "notkubernetes.io/x",
        "team",
    ],
)
def test_well_known_and_own_labels_may_be_required(key: str) -> None:
    assert requirement_problems({"key": key, "operator": "Exists"}) == ()


def test_a_hundred_requirements_are_enough() -> None:
    assert requirement_problems(*[ZONE] * 100) == ()
    assert only(requirement_problems(*[ZONE] * 101), "spec.template.spec.requirements: has 101 entries; allowed are at")


def test_all_problems_are_reported_at_once() -> None:
    problems = pool_problems(
        {"requirements": [{"key": "a", "operator": "In"}], "expireAfter": "1d"}, weight=0, limits={"cpu": "-1"}
    )
    assert [p.split(":")[0] for p in problems] == [
        "spec.template.spec.requirements[0].values",
        "spec.template.spec.expireAfter",
        "spec.limits.cpu",
        "spec.weight",
    ]


@pytest.mark.parametrize(
    ("template", "problem"),
    [
        ({"nodeClassRef": {}}, "nodeClassRef.name: is empty"),
        ({"nodeClassRef": {"name": "a", "kind": "AWSNodeTemplate"}}, 'nodeClassRef.kind: "AWSNodeTemplate"'),
        (
            {"nodeClassRef": {"name": "a", "group": "x"}},
            'nodeClassRef.group: "x" is not allowed; allowed are karp',
        ),
        ({"taints": [{"key": "", "effect": "NoSchedule"}]}, 'taints[0].key: "" is not a label key'),
        (
            {"startupTaints": [{"key": "a", "effect": "no"}]},
            'startupTaints[0].effect: "no" is not allowed',
        ),
        ({"taints": [{"key": "a", "value": "b c", "effect": "NoExecute"}]}, 'taints[0].value: "b c"'),
        ({"expireAfter": "soon"}, 'expireAfter: "soon" is not a duration'),
        ({"terminationGracePeriod": "Never"}, 'terminationGracePeriod: "Never" is not allowed'),
    ],
)
def test_a_bad_template_is_reported_by_field(template: dict[str, Any], problem: str) -> None:
    assert only(pool_problems(template), f"spec.template.spec.{problem}")


def test_a_taint_can_not_be_there_twice() -> None:
    taint = {"key": "a", "effect": "NoSchedule"}
    problems = pool_problems({"taints": [taint], "startupTaints": [{**taint, "value": "b"}]})
    assert only(problems, 'spec.template.spec.startupTaints[0]: "a:NoSchedule" is there already at spec.template.spec')


@pytest.mark.parametrize(
    ("disruption", "problem"),
    [
        ({"consolidationPolicy": "WhenUnderutilized"}, 'consolidationPolicy: "WhenUnderutilized" is not allowed'),
        ({"consolidateAfter": "30"}, 'consolidateAfter: "30" is not a duration'),
        ({"budgets": [{}] * 51}, "budgets: has 51 entries"),
        ({"budgets": [{"nodes": "101%"}]}, 'budgets[0].nodes: "101%" is not allowed'),
        ({"budgets": [{"nodes": "-1"}]}, 'budgets[0].nodes: "-1" is not allowed'),
        ({"budgets": [{"nodes": "1\n"}]}, "budgets[0].nodes"),
        ({"budgets": [{"reasons": ["Expired"]}]}, 'budgets[0].reasons[0]: "Expired" is not allowed; allowed are Under'),
        ({"budgets": [{"schedule": "@daily"}]}, "budgets[0].duration: is missing; schedule and duration must"),
        ({"budgets": [{"duration": "1h"}]}, "budgets[0].schedule: is missing"),
        ({"budgets": [{"schedule": "@daily", "duration": "90s"}]}, 'budgets[0].duration: "90s" is not allowed'),
        ({"budgets": [{"schedule": "@daily", "duration": "0s"}]}, 'budgets[0].duration: "0s" is not allowed'),
    ],
)
def test_bad_disruption_is_reported_by_field(disruption: dict[str, Any], problem: str) -> None:
    assert only(pool_problems(disruption=disruption), f"spec.disruption.{problem}")


@pytest.mark.parametrize("policy", ["WhenEmpty", "WhenEmptyOrUnderutilized", "Balanced"])
def test_the_three_policies_and_never_are_allowed(policy: str) -> None:
    assert pool_problems(disruption={"consolidationPolicy": policy, "consolidateAfter": "Never", "budgets": []}) == ()


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"limits": {"cpu": "10 cores"}}, 'spec.limits.cpu: "10 cores" is not a quantity'),
        ({"weight": 101}, "spec.weight: 101 is not allowed; allowed is 1 to 100"),
        ({"replicas": -1}, "spec.replicas: -1 is not allowed; allowed is 0 or more"),
    ],
)
def test_bad_limits_and_numbers_are_reported(spec: dict[str, Any], problem: str) -> None:
    assert only(pool_problems(**spec), problem)


def test_a_name_that_is_no_label_value_is_reported() -> None:
    raw = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "p" * 64},
        "spec": {"template": {"spec": {"nodeClassRef": {"name": "c"}}}},
    }
    assert only(node_pool(raw).problems, f'metadata.name: "{"p" * 64}" has 64 characters; allowed are at most 63')


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"instanceProfile": "p"}, 'spec.role: "nodes" is not allowed together with spec.instanceProfile "p"'),
        ({"role": "arn:aws:iam::1:role/nodes"}, 'spec.role: "arn:aws:iam::1:role/nodes" is not allowed'),
        ({"subnetSelectorTerms": []}, "spec.subnetSelectorTerms: is empty"),
        ({"subnetSelectorTerms": [{"tags": {"a": "b"}}] * 31}, "spec.subnetSelectorTerms: has 31 entries"),
        ({"subnetSelectorTerms": [{}]}, "spec.subnetSelectorTerms[0]: selects nothing; one of tags, id is needed"),
        (
            {"subnetSelectorTerms": [{"id": "subnet-1", "tags": {"a": "b"}}]},
            'spec.subnetSelectorTerms[0].id: "subnet-1" is not allowed together with tags',
        ),
        ({"subnetSelectorTerms": [{"id": "sg-1"}]}, 'spec.subnetSelectorTerms[0].id: "sg-1" is not allowed'),
        ({"subnetSelectorTerms": [{"tags": {"a": ""}}]}, 'spec.subnetSelectorTerms[0].tags.a: "a=" is not allowed'),
        ({"securityGroupSelectorTerms": None}, "spec.securityGroupSelectorTerms: is empty"),
        (
            {"securityGroupSelectorTerms": [{"name": "a", "tags": {"a": "b"}}]},
            'spec.securityGroupSelectorTerms[0].name: "a" is not allowed together with tags',
        ),
        ({"amiSelectorTerms": []}, "spec.amiSelectorTerms: is empty"),
        ({"amiSelectorTerms": [{"alias": "ubuntu@latest"}]}, 'spec.amiSelectorTerms[0].alias: "ubuntu@latest"'),
        ({"amiSelectorTerms": [{"alias": "al2023"}]}, 'spec.amiSelectorTerms[0].alias: "al2023" is not allowed'),
        (
            {"amiSelectorTerms": [{"alias": "windows2022@v1"}]},
            'spec.amiSelectorTerms[0].alias: "windows2022@v1" is not allowed; Windows has no versions',
        ),
        ({"amiFamily": "AL2"}, 'spec.amiFamily: "AL2" is not allowed with the alias al2023@latest; allowed are AL2023'),
        ({"amiSelectorTerms": [{"id": "ami-1"}]}, "spec.amiFamily: is missing; without an alias it is needed"),
        (
            {"amiSelectorTerms": [{"alias": "al2@latest"}, {"id": "ami-1"}]},
            'spec.amiSelectorTerms[0].alias: "al2@latest" is not allowed together with other terms',
        ),
        (
            {"amiFamily": "Custom", "amiSelectorTerms": [{"id": "ami-1", "owner": "self"}]},
            'spec.amiSelectorTerms[0].owner: "self" is not allowed here',
        ),
        ({"amiFamily": "Custom", "amiSelectorTerms": [{"owner": "self"}]}, "spec.amiSelectorTerms[0]: selects nothing"),
        (
            {"capacityReservationSelectorTerms": [{"tags": {"a": "b"}, "ownerID": "me"}]},
            'spec.capacityReservationSelectorTerms[0].ownerID: "me" is not allowed',
        ),
        (
            {"capacityReservationSelectorTerms": [{"instanceMatchCriteria": "closed"}]},
            'spec.capacityReservationSelectorTerms[0].instanceMatchCriteria: "closed" is not allowed',
        ),
        ({"tags": {"kubernetes.io/cluster/x": "owned"}}, "spec.tags.kubernetes.io/cluster/x"),
        ({"tags": {"karpenter.sh/nodepool": "x"}}, "spec.tags.karpenter.sh/nodepool"),
        ({"tags": {"eks:eks-cluster-name": "x"}}, "spec.tags.eks:eks-cluster-name"),
        ({"tags": {"aws:x": "x"}}, 'spec.tags.aws:x: "aws:x" is set by Tenon, EKS or AWS'),
        ({"tags": {"a": "x" * 257}}, "spec.tags.a: has 257 characters; allowed are at most 256"),
        ({"instanceStorePolicy": "RAID1"}, 'spec.instanceStorePolicy: "RAID1" is not allowed; allowed are RAID0'),
        (
            {"metadataOptions": {"httpTokens": "no"}},
            'spec.metadataOptions.httpTokens: "no" is not allowed',
        ),
        ({"metadataOptions": {"httpPutResponseHopLimit": 65}}, "spec.metadataOptions.httpPutResponseHopLimit: 65"),
    ],
)
def test_a_bad_class_is_reported_by_field(spec: dict[str, Any], problem: str) -> None:
    assert only(class_problems(**spec), problem)


def test_a_negative_count_of_ip_prefixes_is_reported_by_field() -> None:
    assert only(class_problems(ipPrefixCount=-1), "spec.ipPrefixCount: -1 is not allowed; allowed is 0 or more")


def test_enclave_options_must_say_whether_enclaves_are_enabled() -> None:
    assert only(class_problems(enclaveOptions={}), "spec.enclaveOptions.enabled: is missing")


@pytest.mark.parametrize(
    ("device", "problem"),
    [
        ({"ebs": {"volumeSize": "20Gi"}}, "deviceName: is empty"),
        ({"deviceName": "a", "ebs": {}}, "ebs.volumeSize: is missing; volumeSize or snapshotID is needed"),
        ({"deviceName": "a", "ebs": {"volumeSize": 20}}, "ebs.volumeSize: 20 is not allowed; allowed is 1Gi to 64Ti"),
        ({"deviceName": "a", "ebs": {"volumeSize": "20GB"}}, 'ebs.volumeSize: "20GB" is not a quantity'),
        ({"deviceName": "a", "ebs": {"volumeSize": "1Gi", "volumeType": "gp4"}}, 'ebs.volumeType: "gp4"'),
        ({"deviceName": "a", "ebs": {"volumeSize": "1Gi", "volumeType": "gp2", "iops": 300}}, "ebs.iops: 300"),
        ({"deviceName": "a", "ebs": {"volumeSize": "1Gi", "throughput": 100}}, "ebs.throughput: 100 is not allowed"),
        ({"deviceName": "a", "ebs": {"volumeSize": "1Gi", "volumeType": "io1", "throughput": 125}}, "ebs.throughput"),
        ({"deviceName": "a", "ebs": {"volumeSize": "1Gi", "kmsKeyID": "k", "encrypted": False}}, "ebs.encrypted"),
        ({"deviceName": "a", "ebs": {"volumeSize": "1Gi", "volumeInitializationRate": 100}}, "ebs.volumeInit"),
        ({"deviceName": "/dev/xvda"}, 'deviceName: "/dev/xvda" is there already at spec.blockDeviceMappings[0]'),
        ({"deviceName": "a", "rootVolume": True}, "rootVolume: true is there already at spec.blockDeviceMappings[0]"),
    ],
)
def test_a_bad_volume_is_reported_by_field(device: dict[str, Any], problem: str) -> None:
    root = {"deviceName": "/dev/xvda", "rootVolume": True, "ebs": {"volumeSize": "20Gi"}}
    assert only(class_problems(blockDeviceMappings=[root, device]), f"spec.blockDeviceMappings[1].{problem}")


def test_a_full_class_has_no_problems() -> None:
    problems = class_problems(
        role=None,
        instanceProfile="nodes",
        amiFamily="Custom",
        amiSelectorTerms=[
            {"tags": {"a": "*"}, "owner": "self"},
            {"name": "n"},
            {"ssmParameter": "/p"},
            {"id": "ami-1"},
        ],
        capacityReservationSelectorTerms=[{"id": "cr-1"}, {"tags": {"a": "b"}, "ownerID": "123456789012"}],
        kubelet={
            "maxPods": 110,
            "systemReserved": {"cpu": "100m"},
            "evictionHard": {"memory.available": "5%", "nodefs.available": "1Gi"},
            "evictionSoft": {"memory.available": "10.5%"},
            "evictionSoftGracePeriod": {"memory.available": "1m"},
            "clusterDNS": ["10.0.0.10", "fd00::a"],
        },
        blockDeviceMappings=[
            {"deviceName": "/dev/xvda", "ebs": {"volumeSize": "64Ti", "iops": 3000, "throughput": 1000}},
            {"deviceName": "/dev/xvdb", "ebs": {"snapshotID": "snap-1", "volumeInitializationRate": 300}},
        ],
        tags={"Name": "x", "team": ""},
        instanceStorePolicy="RAID0",
    )
    assert problems == ()


def test_a_claim_may_name_its_pool_and_a_legacy_class() -> None:
    def problems(**spec: object) -> tuple[str, ...]:
        whole = {"nodeClassRef": {"kind": "AWSNodeTemplate", "name": "default"}, **spec}
        return node_claim(
            {"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": "c"}, "spec": whole}
        ).problems

    assert problems(requirements=[{"key": "karpenter.sh/nodepool", "operator": "In", "values": ["p"]}]) == ()
    assert only(problems(resources={"requests": {"cpu": "x"}}), 'spec.resources.requests.cpu: "x" is not a quantity')
    assert only(problems(nodeClassRef={"name": ""}), "spec.nodeClassRef.name: is empty")
