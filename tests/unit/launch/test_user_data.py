"""The user data of each AMI family, merged with the user's own."""

from __future__ import annotations

import email
import shlex
import tomllib
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from shared.ami_family import bottlerocket
from shared.ami_family.bootstrap import (
    SHELL,
    UNREGISTERED,
    Bootstrap,
    Part,
    UserDataError,
    parse_mime,
    registrable,
    write_mime,
)
from shared.ami_family.families import FAMILIES, render_user_data, unsupported_settings
from shared.api.kubelet import SETTINGS
from shared.api.kubernetes import Taint
from shared.cluster.connect import ClusterInfo

CLUSTER = ClusterInfo(
    name="demo",
    endpoint="https://demo.example",
    certificate_authority="Q0E=",
    version="1.34",
    service_cidr="10.100.0.0/16",
    region="us-east-1",
)
KUBELET = {
    "maxPods": 40,
    "systemReserved": {"cpu": "100m"},
    "evictionHard": {"memory.available": "5%"},
    "clusterDNS": ["10.100.0.10"],
    "evictionMaxPodGracePeriod": 60,
}


def boot(user_data: str = "", kubelet: dict[str, Any] | None = KUBELET, *, raid: bool = False) -> Bootstrap:
    return Bootstrap(
        cluster=CLUSTER,
        labels={"team": "a", "karpenter.sh/nodepool": "default"},
        taints=(Taint(key="special", value="yes", effect="NoSchedule"), UNREGISTERED),
        kubelet=kubelet,
        user_data=user_data,
        raid=raid,
    )


def parts(text: str) -> list[tuple[str, str]]:
    message = email.message_from_string(text)
    assert message.is_multipart()
    return [(p.get_content_type(), str(p.get_payload())) for p in message.walk() if not p.is_multipart()]


def test_al2023_gets_its_cluster_kubelet_labels_and_taints() -> None:
    ((kind, text),) = parts(render_user_data(FAMILIES["AL2023"], boot(raid=True)))
    assert kind == "application/node.eks.aws"
    config = yaml.safe_load(text)
    assert config["kind"] == "NodeConfig"
    assert config["spec"]["cluster"] == {
        "name": "demo",
        "apiServerEndpoint": "https://demo.example",
        "certificateAuthority": "Q0E=",
        "cidr": "10.100.0.0/16",
    }
    assert config["spec"]["kubelet"]["config"] == {
        "maxPods": 40,
        "clusterDNS": ["10.100.0.10"],
        "systemReserved": {"cpu": "100m"},
        "evictionHard": {"memory.available": "5%"},
        "evictionMaxPodGracePeriod": 60,
    }
    assert config["spec"]["kubelet"]["flags"] == [
        "--node-labels=karpenter.sh/nodepool=default,team=a",
        "--register-with-taints=special=yes:NoSchedule,karpenter.sh/unregistered:NoExecute",
    ]
    assert config["spec"]["instance"] == {"localStorage": {"strategy": "RAID0"}}


@pytest.mark.parametrize(
    ("user_data", "kinds"),
    [
        ("#!/bin/bash\necho hello", ["text/x-shellscript"]),
        ("apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec: {}", ["application/node.eks.aws"]),
        (write_mime([Part(SHELL, "#!/bin/sh\n: --// :")]), ["text/x-shellscript"]),
    ],
)
def test_al2023_keeps_the_users_part_after_ours(user_data: str, kinds: list[str]) -> None:
    assert [kind for kind, _ in parts(render_user_data(FAMILIES["AL2023"], boot(user_data)))] == [
        "application/node.eks.aws",
        *kinds,
    ]


@pytest.mark.parametrize("user_data", ["just words", "a: [", "kind: Pod", "Content-Type: multipart/mixed\n\nx"])
def test_al2023_rejects_what_nodeadm_could_not_read(user_data: str) -> None:
    with pytest.raises(UserDataError, match=r"^spec\.userData "):
        render_user_data(FAMILIES["AL2023"], boot(user_data))


@pytest.mark.parametrize(
    ("family", "user_data"),
    [
        ("AL2023", "#!/bin/sh\n# {}"),
        ("AL2", "#!/bin/sh\n# {}"),
        ("Bottlerocket", 'settings.motd = "{}"'),
        ("Windows2022", "# {}"),
        ("Custom", "{}"),
    ],
)
def test_more_user_data_than_ec2_takes_is_refused_with_its_size(family: str, user_data: str) -> None:
    render_user_data(FAMILIES[family], boot(user_data.format("x" * 10_000)))
    with pytest.raises(UserDataError, match=r"EC2 takes 16,384: let spec\.userData fetch"):
        render_user_data(FAMILIES[family], boot(user_data.format("x" * 16_400)))


def test_al2023_renders_every_kubelet_setting_as_it_is() -> None:
    kubelet = {
        "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
        "failSwapOn": False,
        "resolvConf": "",
        "enforceNodeAllocatable": [],
        "cpuManagerPolicyOptions": {"full-pcpus-only": "true"},
        "evictionMinimumReclaim": {"memory.available": "1e3"},
        "shutdownGracePeriod": "45s",
        "memoryThrottlingFactor": 0.9,
    }
    given_settings = {**kubelet, "maxPods": 40, "logging": None}
    ((_, text),) = parts(render_user_data(FAMILIES["AL2023"], boot(kubelet=given_settings)))
    assert yaml.safe_load(text)["spec"]["kubelet"]["config"] == {"maxPods": 40, **kubelet}


@pytest.mark.parametrize("family", ["AL2", "Bottlerocket", "Windows2022"])
@pytest.mark.parametrize(
    ("kubelet", "problem"),
    [
        ({"shutdownGracePeriod": "45s"}, 'spec.kubelet.shutdownGracePeriod: "45s" is not supported by '),
        ({"failSwapOn": False}, "spec.kubelet.failSwapOn: false is not supported by "),
        ({"clusterDNS": ["10.0.0.10", "fd00::a"]}, 'spec.kubelet.clusterDNS: ["10.0.0.10","fd00::a"] is not supported'),
    ],
)
def test_a_setting_that_a_bootstrap_does_not_map_is_named(family: str, kubelet: dict[str, Any], problem: str) -> None:
    (only,) = unsupported_settings(FAMILIES[family], {**KUBELET, **kubelet})
    assert only.startswith(problem)
    for any_setting in ("AL2023", "Custom"):
        assert unsupported_settings(FAMILIES[any_setting], kubelet) == []


@pytest.mark.parametrize(("family", "count"), [("AL2", 0), ("Windows2022", 0), ("Bottlerocket", 1)])
def test_every_family_maps_the_settings_that_tenon_reads_but_pods_per_core(family: str, count: int) -> None:
    kubelet = dict.fromkeys(SETTINGS, 1) | {"clusterDNS": ["10.0.0.10"], "allowedUnsafeSysctls": []}
    unsupported = unsupported_settings(FAMILIES[family], kubelet)
    assert len(unsupported) == count
    assert all(problem.startswith("spec.kubelet.podsPerCore: ") for problem in unsupported)


def test_al2_calls_bootstrap_after_the_users_script() -> None:
    users, ours = parts(render_user_data(FAMILIES["AL2"], boot("#!/bin/sh\necho 'it''s mine'", raid=True)))
    assert "it''s mine" in users[1]
    words = shlex.split(ours[1].splitlines()[-1])
    assert words[:2] == ["/etc/eks/bootstrap.sh", "demo"]
    given_to = dict(zip(words[2::2], words[3::2], strict=True))
    assert given_to["--apiserver-endpoint"] == "https://demo.example"
    assert given_to["--b64-cluster-ca"] == "Q0E="
    assert given_to["--dns-cluster-ip"] == "10.100.0.10"
    assert given_to["--use-max-pods"] == "false"
    assert given_to["--local-disks"] == "raid0"
    assert given_to["--kubelet-extra-args"].split() == [
        "--node-labels=karpenter.sh/nodepool=default,team=a",
        "--register-with-taints=special=yes:NoSchedule,karpenter.sh/unregistered:NoExecute",
        "--max-pods=40",
        "--eviction-max-pod-grace-period=60",
        "--system-reserved=cpu=100m",
        "--eviction-hard=memory.available<5%",
    ]


def test_bottlerocket_merges_the_users_settings_under_ours() -> None:
    users = """
    [settings.kubernetes]
    cluster-name = "another"
    allowed-unsafe-sysctls = ["net.core.somaxconn"]
    [settings.kubernetes.node-labels]
    mine = "yes"
    [settings.host-containers.admin]
    enabled = true
    """
    settings = tomllib.loads(render_user_data(FAMILIES["Bottlerocket"], boot(users, raid=True)))["settings"]
    kubernetes = settings["kubernetes"]
    assert kubernetes["cluster-name"] == "demo"
    assert kubernetes["api-server"] == "https://demo.example"
    assert kubernetes["cluster-certificate"] == "Q0E="
    assert kubernetes["max-pods"] == 40
    assert kubernetes["system-reserved"] == {"cpu": "100m"}
    assert kubernetes["allowed-unsafe-sysctls"] == ["net.core.somaxconn"]
    assert kubernetes["node-labels"] == {"mine": "yes", "team": "a", "karpenter.sh/nodepool": "default"}
    assert kubernetes["node-taints"] == {"special": ["yes:NoSchedule"], "karpenter.sh/unregistered": [":NoExecute"]}
    assert settings["host-containers"] == {"admin": {"enabled": True}}
    assert "000-mount-instance-storage" in settings["bootstrap-commands"]


TOML_VALUES = st.recursive(
    st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(st.characters(codec="utf-8", exclude_characters="\x7f")),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(codec="utf-8", exclude_characters="\x7f")), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.text(st.characters(codec="utf-8", exclude_characters="\x7f")), TOML_VALUES, max_size=4))
def test_settings_are_written_as_toml_reads_them(settings: dict[str, object]) -> None:
    assert tomllib.loads("\n".join(bottlerocket._write(settings, ()))) == settings


def test_windows_runs_the_bootstrap_script_after_the_users() -> None:
    text = render_user_data(FAMILIES["Windows2022"], boot("<powershell>\nWrite-Host 'mine'\n</powershell>"))
    assert text.startswith("<powershell>\nWrite-Host 'mine'\n")
    assert text.rstrip().endswith("</powershell>")
    assert "-EKSClusterName 'demo'" in text
    assert "-DNSClusterIP '10.100.0.10'" in text
    with pytest.raises(UserDataError, match="PowerShell"):
        render_user_data(FAMILIES["Windows2022"], boot("<script>dir</script>"))


def test_custom_user_data_is_unchanged() -> None:
    assert render_user_data(FAMILIES["Custom"], boot("anything\n at all")) == "anything\n at all"


def test_labels_that_a_kubelet_may_not_set_are_left_to_registration() -> None:
    allowed = {"team": "a", "node.kubernetes.io/mine": "b", "kubernetes.io/arch": "amd64", "karpenter.sh/nodepool": "c"}
    refused = {"kubernetes.io/mine": "x", "node-role.kubernetes.io/worker": "x", "my.k8s.io/x": "x"}
    assert registrable(allowed | refused) == allowed


@given(
    st.lists(
        st.text(st.characters(codec="ascii", min_codepoint=32, max_codepoint=126), min_size=1), min_size=1, max_size=4
    )
)
def test_an_archive_comes_back_as_it_was_written(texts: list[str]) -> None:
    written = write_mime([Part(SHELL, f"#!/bin/sh\n{text}") for text in texts])
    assert [p.text.rstrip("\n") for p in parse_mime(written)] == [f"#!/bin/sh\n{text}" for text in texts]
