"""Connecting to a cluster by its name."""

from __future__ import annotations

import base64
import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import boto3
import pytest
from moto import mock_aws
from moto.eks.models import eks_backends

from local.kubernetes.apiserver.auth import User
from local.kubernetes.apiserver.server import Server
from local.kubernetes.registry.store import Store
from shared.base import aws, runtime
from shared.base.runtime import Runtime
from shared.base.settings import Settings
from shared.cluster import resources
from shared.cluster.connect import ClusterError, connect, describe
from shared.cluster.eks_token import TOKEN_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.cluster.conftest import Clock

REGION = "eu-central-1"


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> Iterator[None]:
    for name, value in (
        ("AWS_ACCESS_KEY_ID", "testing"),
        ("AWS_SECRET_ACCESS_KEY", "testing"),
        ("AWS_DEFAULT_REGION", REGION),
    ):
        monkeypatch.setenv(name, value)
    with mock_aws(), runtime.using(Runtime(environ={}, now=clock.now, sleep=clock.sleep)):
        boto3.client("eks").create_cluster(
            name="demo",
            version="1.34",
            roleArn="arn:aws:iam::123456789012:role/cluster",
            resourcesVpcConfig={},
            kubernetesNetworkConfig={"serviceIpv4Cidr": "172.20.0.0/16"},
        )
        yield


def stored() -> Any:
    return eks_backends["123456789012"][REGION].clusters["demo"]


@pytest.mark.usefixtures("account")
def test_describe_returns_the_clusters_info() -> None:
    info = describe(aws.eks(), "demo")
    assert (info.name, info.version, info.region) == ("demo", "1.34", REGION)
    assert info.service_cidr == "172.20.0.0/16"
    assert info.endpoint.startswith("https://")
    assert info.certificate_authority


@pytest.mark.usefixtures("account")
def test_an_upgrade_is_noticed_within_a_quarter_of_an_hour(clock: Clock) -> None:
    assert describe(aws.eks(), "demo").version == "1.34"
    stored().version = "1.35"
    clock.time += timedelta(minutes=14)
    assert describe(aws.eks(), "demo").version == "1.34"
    clock.time += timedelta(minutes=1)
    assert describe(aws.eks(), "demo").version == "1.35"


@pytest.mark.usefixtures("account")
def test_an_unknown_cluster_raises() -> None:
    with pytest.raises(ClusterError, match='no EKS cluster is named "nobody"'):
        describe(aws.eks(), "nobody")


@pytest.mark.usefixtures("account")
def test_a_cluster_without_an_endpoint_raises() -> None:
    stored().endpoint = None
    stored().status = "CREATING"
    with pytest.raises(ClusterError, match="CREATING"):
        describe(aws.eks(), "demo")


@pytest.mark.usefixtures("account")
def test_each_request_carries_a_token_for_the_cluster(clock: Clock) -> None:
    tokens: list[str] = []

    def authenticate(token: str | None) -> User | None:
        tokens.append(token or "")
        return User("system:node", ("system:masters",)) if token else None

    with Server(Store(now=clock.now), authenticate=authenticate) as server:
        stored().endpoint = server.url
        stored().certificate_authority = {"data": base64.b64encode(server.ca_pem.encode()).decode()}
        client = connect(Settings(cluster_name="demo"))
        assert connect(Settings(cluster_name="demo")) is client
        namespaces = [json.loads(client.get(resources.NAMESPACES.path(name))) for name in ("default",) * 3]
        client.close()
    assert [namespace["metadata"]["name"] for namespace in namespaces] == ["default"] * 3
    assert len(tokens) == 3
    assert len(set(tokens)) == 1
    text = tokens[0].removeprefix(TOKEN_PREFIX)
    url = urlsplit(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode())
    assert url.netloc == f"sts.{REGION}.amazonaws.com"
    assert parse_qs(url.query)["X-Amz-SignedHeaders"] == ["host;x-k8s-aws-id"]
