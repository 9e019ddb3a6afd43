"""RuntimeClasses: what the API server adds to the pods that name one."""

from __future__ import annotations

from shared.api.kubernetes import Toleration
from shared.api.meta import ApiStruct, ObjectMeta, RawQuantities


class RuntimeClassOverhead(ApiStruct):
    """What a pod uses besides its containers."""

    pod_fixed: RawQuantities = {}


class RuntimeClassScheduling(ApiStruct):
    """The nodes that have the runtime."""

    node_selector: dict[str, str] = {}
    tolerations: list[Toleration] = []


class RuntimeClass(ApiStruct):
    """A RuntimeClass."""

    metadata: ObjectMeta = ObjectMeta()
    overhead: RuntimeClassOverhead | None = None
    scheduling: RuntimeClassScheduling | None = None
    kind: str = "RuntimeClass"
    api_version: str = "node.k8s.io/v1"
