"""DaemonSets: what their pods take of each node, and the environment of their containers."""

from __future__ import annotations

from shared.api.containers import Container
from shared.api.kubernetes import PodSpec, PodTemplate
from shared.api.meta import ApiStruct, LabelSelector, ObjectMeta


class EnvVar(ApiStruct):
    """A variable of a container's environment; "" if its value comes from elsewhere."""

    name: str = ""
    value: str = ""


class DaemonSetContainer(Container):
    """A container of a DaemonSet, with its environment: the VPC CNI's says how many pods get addresses."""

    env: list[EnvVar] = []


class DaemonSetPodSpec(PodSpec):
    """The pods of a DaemonSet."""

    containers: list[DaemonSetContainer] = []  # type: ignore[assignment]  # nothing puts other containers into it


class DaemonSetPodTemplate(PodTemplate):
    """The template of a DaemonSet's pods."""

    spec: DaemonSetPodSpec = DaemonSetPodSpec()


class DaemonSetSpec(ApiStruct):
    """What a DaemonSet runs on each node."""

    selector: LabelSelector | None = None
    template: DaemonSetPodTemplate = DaemonSetPodTemplate()


class DaemonSetStatus(ApiStruct):
    """What its controller says of a DaemonSet."""

    current_number_scheduled: int = 0


class DaemonSet(ApiStruct):
    """A DaemonSet: its pods use resources on every node that they run on."""

    metadata: ObjectMeta = ObjectMeta()
    spec: DaemonSetSpec = DaemonSetSpec()
    status: DaemonSetStatus = DaemonSetStatus()
    kind: str = "DaemonSet"
    api_version: str = "apps/v1"
