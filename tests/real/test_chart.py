"""The Helm chart renders the objects that `tenon manifests` prints, and a real API server takes them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from distribution import chart
from infra import function_sizes
from infra.cluster.kubernetes import cluster_manifests, flow_schemas, kinds_check
from local.real.control_plane import ControlPlane
from local.real.go_build import Binary, go

if TYPE_CHECKING:
    from shared.cluster.client import Client

HELM = Binary(
    name="helm",
    module=Path(__file__).with_name("helm"),
    sources=("go.mod", "go.sum"),
    command=("build", "helm.sh/helm/v4/cmd/helm"),
)
IMAGE, ROLE = "registry.example/tenon-relay:0.1.0", "arn:aws:iam::123456789012:role/relay"
TOLERATION = {"key": "dedicated", "operator": "Exists"}
POD = {
    "mode": "pod",
    "image": IMAGE,
    "roleArn": ROLE,
    "architecture": "arm64",
    "tolerations": [TOLERATION],
}
ALWAYS = [name for name in function_sizes.FUNCTIONS if name != function_sizes.RELAY]
OPTIONAL = [function_sizes.BUFFERS, function_sizes.NODE_GROUPS]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not go():
        pytest.skip("needs Go to build Helm")
    return chart.write(tmp_path_factory.mktemp("chart"))


def rendered(folder: Path, **values: Any) -> list[dict[str, Any]]:
    """The objects that Helm renders with these values."""
    path = folder.with_name("values.yaml")
    path.write_text(json.dumps({"cluster": "prod", "region": "eu-west-1", **values}))
    command = [str(HELM.built()), "template", "tenon", str(folder), "--values", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [obj for obj in yaml.safe_load_all(done.stdout) if obj]


def by_name(objects: list[dict[str, Any]]) -> dict[tuple[str, str, str], dict[str, Any]]:
    """The objects, without what only Helm reads."""
    named = {}
    for obj in json.loads(json.dumps(objects)):
        metadata = obj["metadata"]
        for key in chart.KEEP:
            metadata.get("annotations", {}).pop(key, None)
        named[obj["kind"], metadata.get("namespace", ""), metadata["name"]] = obj
    assert len(named) == len(objects)
    return named


def pod() -> list[dict[str, Any]]:
    return cluster_manifests.relay(
        cluster="prod",
        region="eu-west-1",
        image=IMAGE,
        architecture="arm64",
        role_arn=ROLE,
        tolerations=[TOLERATION],
    )


def expected(functions: list[str], *, relay_pod: bool = False, **options: bool) -> list[dict[str, Any]]:
    return [
        *cluster_manifests.access(functions, **options),
        *flow_schemas.flow_schemas(functions, relay_pod=relay_pod),
        *(pod() if relay_pod else ()),
    ]


def test_each_choice_of_values_renders_what_the_manifests_have(folder: Path) -> None:
    everything = rendered(folder)
    functions = [*ALWAYS, function_sizes.RELAY]
    assert by_name(everything) == by_name([*cluster_manifests.kinds(), *expected(functions)])
    plain = rendered(folder, kinds=False, relay={"mode": "webhook"})
    assert by_name(plain) == by_name(expected(ALWAYS))
    own = rendered(folder, kinds=False, buffers=True, nodeGroups=True, reboot=True, relay=POD)
    assert by_name(own) == by_name(expected([*ALWAYS, *OPTIONAL], relay_pod=True, node_groups=True, reboot=True))
    without = {kind["metadata"]["name"] for kind in everything if kind["kind"] == "CustomResourceDefinition"}
    kept = rendered(folder, capacityBuffers=False)
    names = {kind["metadata"]["name"] for kind in kept if kind["kind"] == "CustomResourceDefinition"}
    assert without - names == {kinds_check.CAPACITY_BUFFERS}


def test_a_relay_without_an_image_is_refused(folder: Path) -> None:
    path = folder.with_name("values.yaml")
    path.write_text(json.dumps({"cluster": "prod", "region": "eu-west-1", "relay": {"mode": "pod"}}))
    command = [str(HELM.built()), "template", "tenon", str(folder), "--values", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "relay.image is built from relay/Dockerfile" in done.stderr


def test_a_real_api_server_takes_all_objects(folder: Path, kubeconfig: Path | None, kubernetes: str) -> None:
    if kubeconfig is not None:
        pytest.skip("it asks the control plane that Go builds")
    objects = rendered(folder, buffers=True, nodeGroups=True, reboot=True, relay=POD)
    with ControlPlane(kubernetes=kubernetes, components=()) as control_plane:
        client = control_plane.client()
        try:
            client.create("/api/v1/namespaces", {"metadata": {"name": cluster_manifests.NAMESPACE}})
            for obj in objects:
                dry_run(client, obj)
        finally:
            client.close()


def dry_run(client: Client, obj: dict[str, Any]) -> None:
    """Apply the object server-side, strictly, without storing it."""
    version, namespace = obj["apiVersion"], obj["metadata"].get("namespace", "")
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    collection = f"{root}/namespaces/{namespace}" if namespace else root
    path = f"{collection}/{obj['kind'].lower()}s/{obj['metadata']['name']}"
    client.patch(f"{path}?dryRun=All&fieldValidation=Strict&fieldManager=helm", obj, kind="apply")
