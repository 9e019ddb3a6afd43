"""Cluster Autoscaler's Deployment: found, scaled and watched until its pods are gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli.errors import CommandError
from shared.api.meta import ApiStruct, NamedObject, ObjectMeta
from shared.cluster import listing, writes
from shared.cluster.errors import NotFoundError
from shared.cluster.resources import DEPLOYMENTS, PODS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shared.cluster.client import Client

NAME = "cluster-autoscaler"
NAMESPACE = "kube-system"


class _Variable(ApiStruct):
    name: str = ""
    value: str = ""


class _Container(ApiStruct):
    name: str = ""
    command: list[str] | None = None
    args: list[str] | None = None
    env: list[_Variable] | None = None


class _PodSpec(ApiStruct):
    containers: list[_Container] = []


class _Template(ApiStruct):
    spec: _PodSpec = _PodSpec()


class _Expression(ApiStruct):
    key: str = ""
    operator: str = ""
    values: list[str] = []

    def __str__(self) -> str:
        """As a query has it."""
        match self.operator:
            case "Exists":
                return self.key
            case "DoesNotExist":
                return f"!{self.key}"
        return f"{self.key} {self.operator.lower()} ({','.join(self.values)})"


class _Selector(ApiStruct):
    match_labels: dict[str, str] = {}
    match_expressions: list[_Expression] = []

    def __str__(self) -> str:
        """As a query has it."""
        labels = [f"{key}={value}" for key, value in sorted(self.match_labels.items())]
        return ",".join([*labels, *map(str, self.match_expressions)])


class _Spec(ApiStruct, omit_defaults=False):
    replicas: int = 1
    selector: _Selector = _Selector()
    template: _Template = _Template()


class AutoscalerDeployment(NamedObject):
    """A Deployment, as far as it is read."""

    spec: _Spec = _Spec()

    @property
    def reference(self) -> str:
        """``namespace/name``."""
        return f"{self.metadata.namespace}/{self.name}"

    @property
    def container(self) -> _Container | None:
        """The container that runs Cluster Autoscaler: by its command, else the only one."""
        containers = self.spec.template.spec.containers
        named = [c for c in containers if _runs_autoscaler(c)]
        return next(iter(named), containers[0] if len(containers) == 1 else None)

    @property
    def arguments(self) -> tuple[str, ...]:
        """Its command and arguments."""
        container = self.container
        return (*(container.command or ()), *(container.args or ())) if container is not None else ()

    @property
    def environment(self) -> Mapping[str, str]:
        """Its literal environment variables."""
        container = self.container
        return {v.name: v.value for v in container.env or () if v.value} if container is not None else {}


def _runs_autoscaler(container: _Container) -> bool:
    first = next(iter([*(container.command or ()), *(container.args or ())]), "")
    return first.rpartition("/")[2] == NAME or container.name.endswith(NAME)


class _Pod(ApiStruct):
    metadata: ObjectMeta = ObjectMeta()


def find(client: Client, namespace: str, name: str) -> AutoscalerDeployment:
    """The Deployment of that name, or without a name the only one of the namespace that runs Cluster Autoscaler.

    Raises:
        CommandError: there is none, or several.
        ApiError: the API server can't be read.
    """
    if name:
        deployment = find_named(client, namespace, name)
        if deployment is None:
            raise CommandError(f"there is no Deployment {namespace}/{name}")
        return deployment
    listed = listing.list_objects(client, DEPLOYMENTS, AutoscalerDeployment, namespace=namespace).objects
    candidates = [deployment for deployment in listed if _is_autoscaler(deployment)]
    if not candidates:
        raise CommandError(f"no Deployment in {namespace} runs Cluster Autoscaler; give --namespace and --name")
    if len(candidates) > 1:
        names = ", ".join(sorted(deployment.name for deployment in candidates))
        raise CommandError(f"several Deployments in {namespace} run Cluster Autoscaler ({names}); give --name")
    return candidates[0]


def find_named(client: Client, namespace: str, name: str) -> AutoscalerDeployment | None:
    """The Deployment of that name; None if there is none."""
    try:
        return writes.read(client, DEPLOYMENTS, name, AutoscalerDeployment, namespace=namespace)
    except NotFoundError:
        return None


def _is_autoscaler(deployment: AutoscalerDeployment) -> bool:
    labels = deployment.metadata.labels
    labelled = labels.get("app.kubernetes.io/name", "").endswith(NAME) or labels.get("app") == NAME
    return labelled or any(_runs_autoscaler(c) for c in deployment.spec.template.spec.containers)


def scale(client: Client, deployment: AutoscalerDeployment, replicas: int) -> bool:
    """Give the Deployment that many replicas; whether that changed anything."""
    if deployment.spec.replicas == replicas:
        return False
    path = DEPLOYMENTS.path(deployment.name, namespace=deployment.metadata.namespace, subresource="scale")
    client.patch(path, {"spec": {"replicas": replicas}})
    return True


def pods(client: Client, deployment: AutoscalerDeployment) -> int:
    """How many pods the Deployment has, also those that are terminating."""
    labels, namespace = str(deployment.spec.selector), deployment.metadata.namespace
    return len(listing.list_objects(client, PODS, _Pod, labels=labels, namespace=namespace).objects)
