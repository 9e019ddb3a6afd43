"""The definitions of the five kinds: names, printed columns, and the schemas that the structs yield.

Names, columns and subresources are Karpenter's, so that ``kubectl get`` shows what its users are used to.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shared.api import labels, legacy, nodeclaim, nodeclass, nodepool
from shared.api.crds.openapi import root

if TYPE_CHECKING:
    import msgspec

_READY = '.status.conditions[?(@.type=="Ready")].status'


@dataclass(frozen=True)
class Column:
    """A column of ``kubectl get``; a ``wide`` one is shown with ``-o wide``."""

    name: str
    path: str
    type: str = "string"
    wide: bool = False

    def as_json(self) -> dict[str, Any]:
        """As it stands in the definition."""
        column = {"jsonPath": self.path, "name": self.name, "type": self.type}
        return {**column, "priority": 1} if self.wide else column


@dataclass(frozen=True)
class Definition:
    """A custom kind."""

    struct: type[msgspec.Struct]
    api_version: str
    kind: str
    plural: str
    columns: tuple[Column, ...]
    short_names: tuple[str, ...] = ()
    lenient: bool = False

    @property
    def name(self) -> str:
        """``<plural>.<group>``."""
        return f"{self.plural}.{self.api_version.partition('/')[0]}"

    @property
    def file(self) -> str:
        """The file's name: ``<group>_<plural>.yaml``."""
        return f"{self.api_version.partition('/')[0]}_{self.plural}.yaml"

    def as_json(self) -> dict[str, Any]:
        """The CustomResourceDefinition."""
        group, _, version = self.api_version.partition("/")
        names: dict[str, Any] = {
            "categories": ["karpenter"],
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
                "scope": "Cluster",
                "versions": [
                    {
                        "additionalPrinterColumns": [column.as_json() for column in self.columns],
                        "name": version,
                        "schema": {"openAPIV3Schema": root(self.struct, lenient=self.lenient)},
                        "served": True,
                        "storage": True,
                        "subresources": {"status": {}},
                    }
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
)
