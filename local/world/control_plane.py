"""Where a world's API server and controllers come from: the embedded ones by default, or those of a real cluster."""

from __future__ import annotations

import contextlib
import random
from typing import TYPE_CHECKING, Protocol, Self

from local.kubernetes.apiserver.rbac import Rbac
from local.kubernetes.apiserver.server import ADMIN_TOKEN, Server
from local.kubernetes.control_plane import controllers
from local.kubernetes.registry.store import Store
from local.kubernetes.scheduler.scheduler import VERSION
from local.world.authentication import RELAY_TOKEN, TokenAuthenticator
from local.world.kubernetes_faults import ServerFaults
from shared.cluster.connect import to_server

if TYPE_CHECKING:
    from collections.abc import Sequence

    from local.actor import Actor
    from local.aws.stack import DeployedStack
    from local.clock import Clock
    from local.faults import Faults
    from local.kubernetes.apiserver.http import Request, Response
    from local.kubernetes.registry.admission_webhooks import Call
    from local.kubernetes.registry.object_storage import Backup
    from shared.cluster.client import Client


class ControlPlane(Protocol):
    """A context manager; inside, the API server answers. ``certificate_authority`` is PEM."""

    url: str
    certificate_authority: str
    store: Store
    in_real_time: bool
    """Whether its controllers run by themselves, so that the world's clock can't skip waiting."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc_info: object) -> None: ...

    def controllers(self) -> Sequence[Actor]:
        """The controllers that the world's event loop steps."""
        ...

    def authenticate_functions(self, deployed: DeployedStack) -> None:
        """Authenticate the EKS tokens of these functions from now on."""
        ...

    def relay_client(self) -> Client:
        """A client that is authenticated as the relay. The caller closes it."""
        ...

    def store_of_node(self, node: str) -> Store:
        """The store for what the node's kubelet writes."""
        ...

    def denied_requests(self) -> list[str]:
        """The requests so far that RBAC denied, one text each."""
        ...

    def kubeconfig(self) -> str:
        """The text of an administrator's kubeconfig."""
        ...

    def call_webhooks(self, call: Call) -> None:
        """Call admission webhooks from now on, by ``call``."""
        ...


class EmbeddedControlPlane:
    """The local API server and controllers, in this process and on the world's clock."""

    in_real_time = False

    def __init__(self, clock: Clock, faults: Faults, *, seed: int = 0, port: int = 0, version: str = VERSION) -> None:
        """``seed`` decides the names of objects; ``port`` is the server's, 0 for a free one.

        ``version`` is kube-scheduler's, and the one that the API server states.
        """
        self.store = Store(now=clock.now, rng=random.Random(seed))  # noqa: S311 - names of simulated objects
        self.rbac = Rbac(self.store)
        self._authenticator = TokenAuthenticator()
        self._faults = ServerFaults(faults, sleep=clock.sleep, respond=self._respond)
        self._seed = seed
        self._version = version
        self._port = port
        self._stack = contextlib.ExitStack()
        self._server: Server
        self.url = ""
        self.certificate_authority = ""

    def __enter__(self) -> Self:
        self._server = self._stack.enter_context(
            Server(
                self.store,
                port=self._port,
                authenticate=self._authenticator,
                authorize=self.rbac,
                intercept=self._faults,
            )
        )
        self.url, self.certificate_authority = self._server.url, self._server.ca_pem
        self.state_version(self._version)
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stack.close()

    def controllers(self) -> Sequence[Actor]:
        """All controllers and the scheduler."""
        return controllers(self.store, seed=self._seed, version=self._version)

    def authenticate_functions(self, deployed: DeployedStack) -> None:
        """Authenticate the EKS tokens of these functions from now on."""
        self._authenticator.register(deployed)

    def relay_client(self) -> Client:
        """A client that is authenticated as the relay."""
        return to_server(self.url, self.certificate_authority, lambda: RELAY_TOKEN)

    def store_of_node(self, node: str) -> Store:  # noqa: ARG002 - kubelets are not authorized here
        """The store itself."""
        return self.store

    def denied_requests(self) -> list[str]:
        """The requests so far that RBAC denied, one text each."""
        return [str(denial) for denial in self.rbac.denials]

    def kubeconfig(self) -> str:
        """The text of an administrator's kubeconfig."""
        return self._server.kubeconfig(ADMIN_TOKEN)

    def call_webhooks(self, call: Call) -> None:
        """Call admission webhooks from now on, by ``call``."""
        self.store.webhooks.call = call

    def restore(self, backup: Backup) -> None:
        """Restore etcd from a backup: API servers restart, so watches end, and versions are the backup's again."""
        self._server.api.stop_watches()
        self.store.restore(backup)

    def state_version(self, version: str) -> None:
        """The minor version ("1.37") that the API server states from now on."""
        self._server.api.version = version

    def _respond(self, request: Request) -> Response:
        return self._server.api.respond(request)
