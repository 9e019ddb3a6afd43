"""The definitions of the kinds: names, printed columns, and the schemas that the structs yield.

Names, columns and subresources are upstream's, so that ``kubectl get`` shows what its users are used to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shared.api import capacity_buffer, labels, legacy, node_overlay, nodeclaim, nodeclass, nodepool
from shared.api.crds.openapi import root
from shared.base.struct import Struct

if TYPE_CHECKING:
    import msgspec


def _condition(type_: str, field: str = "status") -> str:
    """The JSON path of a condition's field."""
    return f'.status.conditions[?(@.type=="{type_}")].{field}'


_READY = _condition("Ready")


class Column(Struct):
    """A column of ``kubectl get``; a ``wide`` one is shown with ``-o wide``."""

    name: str
    path: str
    type: str = "string"
    wide: bool = False

    def as_json(self) -> dict[str, Any]:
        """As it stands in the definition."""
        column = {"jsonPath": self.path, "name": self.name, "type": self.type}
        return {**column, "priority": 1} if self.wide else column


class Definition(Struct):
    """A custom kind. Objects are stored as ``api_version``; ``older_versions`` are served with the same schema.

    ``replicas``: the paths of the wanted and the present number, for ``kubectl scale``.
    """

    struct: type[msgspec.Struct]
    api_version: str
    kind: str
    plural: str
    columns: tuple[Column, ...]
    short_names: tuple[str, ...] = ()
    lenient: bool = False
    category: str = "karpenter"
    namespaced: bool = False
    older_versions: tuple[str, ...] = ()
    replicas: tuple[str, str] | None = None

    @property
    def name(self) -> str:
        """``<plural>.<group>``."""
        return f"{self.plural}.{self.api_version.partition('/')[0]}"

    @property
    def file(self) -> str:
        """The file's name: ``<group>_<plural>.yaml``."""
        return f"{self.api_version.partition('/')[0]}_{self.plural}.yaml"

    def _subresources(self) -> dict[str, Any]:
        if self.replicas is None:
            return {"status": {}}
        wanted, present = self.replicas
        return {"scale": {"specReplicasPath": wanted, "statusReplicasPath": present}, "status": {}}

    def as_json(self) -> dict[str, Any]:
        """The CustomResourceDefinition."""
        group, _, version = self.api_version.partition("/")
        names: dict[str, Any] = {
            "categories": [self.category],
            "kind": self.kind,
            "listKind": f"{self.kind}List",
            "plural": self.plural,
            "singular": self.kind.lower(),
        }
        if self.short_names:
            names["shortNames"] = list(self.short_names)
        return {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": self.name},
            "spec": {
                "group": group,
                "names": names,
                "scope": "Namespaced" if self.namespaced else "Cluster",
                "versions": [
                    {
                        "additionalPrinterColumns": [column.as_json() for column in self.columns],
                        "name": served,
                        "schema": {"openAPIV3Schema": root(self.struct, lenient=self.lenient)},
                        "served": True,
                        "storage": served == version,
                        "subresources": self._subresources(),
                    }
                    for served in (version, *self.older_versions)
                ],
            },
        }


def _label(key: str) -> str:
    escaped = key.replace(".", "\\.")
    return f".metadata.labels.{escaped}"


_AGE = Column("Age", ".metadata.creationTimestamp", "date")

DEFINITIONS = (
    Definition(
        nodepool.NodePool,
        nodepool.API_VERSION,
        nodepool.KIND,
        "nodepools",
        (
            Column("NodeClass", ".spec.template.spec.nodeClassRef.name"),
            Column("Nodes", ".status.nodes", "integer"),
            Column("Ready", _READY),
            _AGE,
            Column("Weight", ".spec.weight", "integer", wide=True),
            Column("CPU", ".status.resources.cpu", wide=True),
            Column("Memory", ".status.resources.memory", wide=True),
        ),
        replicas=(".spec.replicas", ".status.nodes"),
    ),
    Definition(
        nodeclaim.NodeClaim,
        nodeclaim.API_VERSION,
        nodeclaim.KIND,
        "nodeclaims",
        (
            Column("Type", _label(labels.INSTANCE_TYPE)),
            Column("Capacity", _label(labels.CAPACITY_TYPE)),
            Column("Zone", _label(labels.ZONE)),
            Column("Node", ".status.nodeName"),
            Column("Ready", _READY),
            _AGE,
            Column("ImageID", ".status.imageID", wide=True),
            Column("ID", ".status.providerID", wide=True),
            Column("NodePool", _label(labels.NODEPOOL), wide=True),
            Column("NodeClass", ".spec.nodeClassRef.name", wide=True),
            Column("Drifted", '.status.conditions[?(@.type=="Drifted")].status', wide=True),
        ),
    ),
    Definition(
        nodeclass.EC2NodeClass,
        nodeclass.API_VERSION,
        nodeclass.KIND,
        "ec2nodeclasses",
        (Column("Ready", _READY), _AGE, Column("Role", ".spec.role", wide=True)),
        short_names=("ec2nc", "ec2ncs"),
    ),
    Definition(
        legacy.Provisioner,
        legacy.PROVISIONER_API_VERSION,
        legacy.PROVISIONER_KIND,
        "provisioners",
        (
            Column("Template", ".spec.providerRef.name"),
            Column("Nodes", ".status.nodes", "integer"),
            Column("Ready", _READY),
            _AGE,
            Column("Weight", ".spec.weight", "integer", wide=True),
            Column("CPU", ".status.resources.cpu", wide=True),
            Column("Memory", ".status.resources.memory", wide=True),
        ),
        lenient=True,
    ),
    Definition(
        legacy.AWSNodeTemplate,
        legacy.TEMPLATE_API_VERSION,
        legacy.TEMPLATE_KIND,
        "awsnodetemplates",
        (Column("Ready", _READY), _AGE, Column("Family", ".spec.amiFamily", wide=True)),
        lenient=True,
    ),
    Definition(
        node_overlay.NodeOverlay,
        node_overlay.API_VERSION,
        node_overlay.KIND,
        "nodeoverlays",
        (Column("Ready", _READY), _AGE, Column("Weight", ".spec.weight", "integer", wide=True)),
        short_names=("overlays",),
    ),
    Definition(
        capacity_buffer.CapacityBuffer,
        capacity_buffer.API_VERSION,
        capacity_buffer.KIND,
        "capacitybuffers",
        (
            Column("Strategy", ".spec.provisioningStrategy"),
            Column("PodTemplate", ".status.podTemplateRef.name"),
            Column("Replicas", ".status.replicas", "integer"),
            Column("Ready", _condition(capacity_buffer.READY_FOR_PROVISIONING)),
            Column("Provisioned", _condition(capacity_buffer.PROVISIONING)),
            _AGE,
            Column("Reason", _condition(capacity_buffer.PROVISIONING, "reason"), wide=True),
        ),
        short_names=("cb",),
        category="autoscaling",
        namespaced=True,
        older_versions=("v1alpha1",),
    ),
)
