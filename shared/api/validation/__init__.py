"""What a schema can't say about the users' objects: each function answers with every problem, a sentence each.

A problem names the field as the user wrote it (legacy kinds by their own paths), its value and what is allowed, so that
it can stand in a condition, an event or on the command line as it is. No problems means that the rest of the code may
rely on the object.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.api.validation import claims, classes, legacy_kinds, pools

if TYPE_CHECKING:
    from shared.api.legacy import AWSNodeTemplate, Provisioner
    from shared.api.nodeclaim import NodeClaim
    from shared.api.nodeclass import EC2NodeClass
    from shared.api.nodepool import NodePool


def node_pool(pool: NodePool) -> tuple[str, ...]:
    """The problems of a karpenter.sh/v1 NodePool."""
    return tuple(pools.problems(pool))


def node_class(node_class: EC2NodeClass) -> tuple[str, ...]:
    """The problems of a karpenter.k8s.aws/v1 EC2NodeClass."""
    return tuple(classes.problems(node_class))


def node_claim(claim: NodeClaim) -> tuple[str, ...]:
    """The problems of a karpenter.sh/v1 NodeClaim."""
    return tuple(claims.problems(claim))


def provisioner(provisioner: Provisioner) -> tuple[str, ...]:
    """The problems of a karpenter.sh/v1alpha5 Provisioner."""
    return tuple(legacy_kinds.provisioner_problems(provisioner))


def node_template(template: AWSNodeTemplate) -> tuple[str, ...]:
    """The problems of a karpenter.k8s.aws/v1alpha1 AWSNodeTemplate."""
    return tuple(legacy_kinds.template_problems(template))
