"""Objects for those who run the export in the cluster, and the rights that it needs anywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cli.export.cluster_reader import LEASE_RULES, RULES
from cli.export.server import HEALTH_PATH, METRICS_PATH
from infra.cluster import resource_names
from infra.cluster.kubernetes.cluster_manifests import LEASE_NAMESPACE, NAMESPACE, role_and_binding
from shared.base import metrics
from shared.cluster.lease import lease_name
from shared.instance_types.catalog_store import KEY

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME = "tenon-export"
PORT = 9090
_LABELS = {"app.kubernetes.io/name": NAME, "app.kubernetes.io/part-of": "tenon"}

Obj = dict[str, Any]


def access(cluster: str, subject: Mapping[str, str]) -> list[Obj]:
    """The ClusterRole, the Role for the cluster's Lease, and their bindings to the subject."""
    role, binding = role_and_binding("", NAME, LEASE_RULES, dict(subject), namespace=LEASE_NAMESPACE)
    role["rules"][0]["resourceNames"] = [lease_name(cluster)]
    return [*role_and_binding("Cluster", NAME, RULES, dict(subject)), role, binding]


def iam_policy(
    cluster: str, *, partition: str = "aws", region: str = "*", account: str = "*", bucket: str = "*"
) -> Obj:
    """The IAM policy of the export's principal.

    ``*`` for GetMetricData: AWS limits it neither to resources nor to a namespace.
    """
    function = resource_names.function(cluster, "provisioner")
    return {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Sid": "FindDeployment",
                "Effect": "Allow",
                "Action": "lambda:GetFunctionConfiguration",
                "Resource": f"arn:{partition}:lambda:{region}:{account}:function:{function}",
            },
            {
                "Sid": "ReadCatalog",
                "Effect": "Allow",
                "Action": "s3:GetObject",
                "Resource": f"arn:{partition}:s3:::{bucket}/{KEY}",
            },
            {
                "Sid": f"Read{metrics.NAMESPACE}Metrics",
                "Effect": "Allow",
                "Action": "cloudwatch:GetMetricData",
                "Resource": "*",
            },
        ],
    }


def in_cluster(*, cluster: str, region: str, image: str, role_arn: str = "") -> list[Obj]:
    """Everything for the export in the cluster: one pod, since a second one would read and pay the same again.

    ``image`` has the `tenon` command as its entry point. ``role_arn`` is the pod's role if it gets it by IRSA; by EKS
    Pod Identity nothing in the cluster names it.
    """
    account = _object("v1", "ServiceAccount", NAME)
    if role_arn:
        account["metadata"]["annotations"] = {"eks.amazonaws.com/role-arn": role_arn}
    service = _object("v1", "Service", NAME)
    service["metadata"]["annotations"] = {
        "prometheus.io/scrape": "true",
        "prometheus.io/port": str(PORT),
        "prometheus.io/path": METRICS_PATH,
    }
    service["spec"] = {"selector": _LABELS, "ports": [{"name": "metrics", "port": PORT, "targetPort": "metrics"}]}
    subject = {"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        account,
        *access(cluster, subject),
        _deployment(cluster, region, image),
        service,
    ]


def _deployment(cluster: str, region: str, image: str) -> Obj:
    probe = {"httpGet": {"path": HEALTH_PATH, "port": "metrics"}}
    container = {
        "name": "export",
        "image": image,
        # a pod's port is only reachable on its address
        "args": ["export", "--listen", "0.0.0.0", "--port", str(PORT), "--cluster", cluster, "--region", region],  # noqa: S104
        "ports": [{"name": "metrics", "containerPort": PORT}],
        "livenessProbe": {**probe, "initialDelaySeconds": 10},
        "readinessProbe": probe,
        "resources": {"requests": {"cpu": "50m", "memory": "192Mi"}, "limits": {"memory": "1Gi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
    }
    deployment = _object("apps/v1", "Deployment", NAME)
    deployment["spec"] = {
        "replicas": 1,
        "selector": {"matchLabels": _LABELS},
        "template": {
            "metadata": {"labels": _LABELS},
            "spec": {
                "serviceAccountName": NAME,
                "securityContext": {
                    "runAsNonRoot": True,
                    "runAsUser": 65532,
                    "seccompProfile": {"type": "RuntimeDefault"},
                },
                "nodeSelector": {"kubernetes.io/os": "linux"},
                "containers": [container],
            },
        },
    }
    return deployment


def _object(api_version: str, kind: str, name: str) -> Obj:
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": dict(_LABELS)},
    }
