"""A run of ``tenon verify``: its id, the cluster and the account that it calls, and how it waits.

While it waits it writes the time to its namespace, so that another run sees whether this one is alive.
"""

from __future__ import annotations

import contextlib
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from cli.verify import objects
from cli.verify.call_times import CallTimes
from shared.base.struct import Struct
from shared.cluster import resources
from shared.cluster.errors import NotFoundError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import datetime

    from cli.verify.objects import Obj
    from shared.base.aws import UntypedClient
    from shared.cluster.client import Client
    from shared.cluster.resources import Resource

T = TypeVar("T")

_POLL_SECONDS = 2.0
_RENEW_AFTER = timedelta(seconds=20)


class _Items(msgspec.Struct):
    items: list[dict[str, Any]] | None = None


_decode_items = msgspec.json.Decoder(_Items).decode


class Settings(Struct, kw_only=True):
    """What the user chose: the node class to copy ("" for one of the cluster's own network), image, and FIS role."""

    node_class: str
    pod_image: str
    fis_role: str


class Verification:
    """A run. ``region``, ``account`` and ``version`` (of Kubernetes) are the cluster's, by EKS's ``description``."""

    def __init__(
        self,
        *,
        id_: str,
        client: Client,
        description: Mapping[str, Any],
        create_client: Callable[[str], UntypedClient],
        settings: Settings,
        now: Callable[[], datetime],
        sleep: Callable[[float], None],
    ) -> None:
        self.id = id_
        self.client = client
        self.description = description
        self.cluster = str(description["name"])
        self.region = str(description["arn"]).split(":")[3]
        self.version = str(description.get("version", ""))
        self.settings = settings
        self.now = now
        self.begun_at = now()
        self.calls = CallTimes(now)
        self._create_client = create_client
        self._clients: dict[str, UntypedClient] = {}
        self._sleep = sleep
        self._renewed = self.begun_at

    @property
    def name(self) -> str:
        """The name of the run's namespace, NodePool and node class."""
        return objects.name(self.id)

    # AWS

    def aws(self, service: str) -> UntypedClient:
        """The client of a service, whose calls are measured."""
        if service not in self._clients:
            self._clients[service] = self._create_client(service)
            self.calls.watch(self._clients[service])
        return self._clients[service]

    def instances(self, *filters: tuple[str, str]) -> list[dict[str, Any]]:
        """The instances that EC2 describes for filters such as ("tag:NAME", "value"), without terminated ones."""
        states = ["pending", "running", "shutting-down", "stopping", "stopped"]
        by = [{"Name": name, "Values": [value]} for name, value in filters]
        pages = (
            self.aws("ec2")
            .get_paginator("describe_instances")
            .paginate(
                Filters=[*by, {"Name": "instance-state-name", "Values": states}], PaginationConfig={"PageSize": 1000}
            )
        )
        return [i for page in pages for r in page["Reservations"] for i in r["Instances"]]

    # The cluster

    def create(self, resource: Resource, obj: Obj) -> None:
        """Create an object."""
        self.client.create(resource.path(namespace=obj["metadata"].get("namespace", "")), obj)

    def get(self, resource: Resource, name: str, *, namespace: str = "") -> Obj | None:
        """The object; None if there is none."""
        try:
            stored: Obj = msgspec.json.decode(self.client.get(resource.path(name, namespace=namespace)))
        except NotFoundError:
            return None
        return stored

    def list_objects(self, resource: Resource, *, namespace: str = "", labels: str = "", fields: str = "") -> list[Obj]:
        """The objects that both selectors match; none if the cluster doesn't have the kind."""
        try:
            pages = list(self.client.list_pages(resource.path(namespace=namespace), labels=labels, fields=fields))
        except NotFoundError:
            return []
        return [item for page in pages for item in _decode_items(page).items or ()]

    def delete(self, resource: Resource, name: str, *, namespace: str = "", grace: int | None = None) -> None:
        """Delete the object, if it exists."""
        with contextlib.suppress(NotFoundError):
            self.client.delete(resource.path(name, namespace=namespace), grace_period_seconds=grace)

    def claims(self) -> list[Obj]:
        """The run's NodeClaims."""
        return self.list_objects(resources.NODE_CLAIMS, labels=f"{objects.LABEL}={self.id}")

    # Time

    def wait(self, condition: Callable[[], T | None], *, limit: timedelta) -> T | None:
        """Call the condition until it returns something true; None after the limit. A moment's outage is no end."""
        end = self.now() + limit
        while True:
            with contextlib.suppress(UnavailableError):
                if result := condition():
                    return result
            if self.now() >= end:
                return None
            self.pause(_POLL_SECONDS)

    def pause(self, seconds: float) -> None:
        """Sleep, and write that the run is alive where that is due."""
        self._sleep(seconds)
        if self.now() - self._renewed >= _RENEW_AFTER:
            self._renewed = self.now()
            with contextlib.suppress(NotFoundError, UnavailableError):
                self.client.patch(
                    resources.NAMESPACES.path(self.name),
                    {"metadata": {"annotations": {objects.RENEWED: self._renewed.isoformat()}}},
                )

    def seconds_since(self, moment: datetime) -> float:
        """The seconds since then, to a tenth."""
        return round((self.now() - moment).total_seconds(), 1)


def condition(obj: Obj, type_: str) -> Obj | None:
    """The object's condition of that type."""
    conditions: Iterable[Obj] = obj.get("status", {}).get("conditions") or ()
    return next((c for c in conditions if c["type"] == type_), None)


def is_true(obj: Obj, type_: str) -> bool:
    """Whether the object's condition of that type is True."""
    return (condition(obj, type_) or {}).get("status") == "True"
