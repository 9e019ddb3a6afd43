"""A world's control plane that is real: one of its own on this machine, or a throw-away cluster of a kubeconfig.

On its own, functions are authenticated by a TokenReview webhook, as on EKS. A throw-away cluster doesn't know that
webhook, so there each function's request is made as the function's user by impersonation. In both, the cluster's own
authorizers judge functions, relay and kubelets.
"""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from kubernetes.client.configuration import Configuration
from kubernetes.config import load_kube_config
from kubernetes.config.config_exception import ConfigException

from infra.cluster.kubernetes import cluster_manifests
from local.clock import RealTimeClock
from local.kubernetes.apiserver.auth import User
from local.real import binary, impersonation
from local.real.control_plane import ControlPlane
from local.real.request_log import RequestLog
from local.real.store import RemoteStore
from local.real.token_review import TokenReviewWebhook
from local.world.authentication import TokenAuthenticator
from shared.cluster.client import Client
from shared.cluster.connect import to_server
from shared.cluster.eks_token import TOKEN_PREFIX
from shared.cluster.errors import ApiError
from shared.cluster.kubeconfig import MALFORMED
from shared.cluster.resources import NODES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager

    from local.actor import Actor
    from local.aws.stack import DeployedStack
    from local.kubernetes.registry.admission_webhooks import Call
    from local.kubernetes.registry.store import Store
    from local.real.recording import Recording

_SWITCH_SECONDS = 0.0005
"""How long a thread keeps the interpreter while others wait for it. By default a thread that has received an answer
waits up to 5 ms for one that computes, several times in each request."""
_TOKEN_SECONDS = 6 * 3600
_CONTROL_PLANE_ROLE = "node-role.kubernetes.io/control-plane"
_CONDITION_TAINTS = "node.kubernetes.io/"
"""Of nodes that aren't Ready yet."""
_CLIENT_NAMESPACE, _CLIENT_ACCOUNT = "kube-system", "tenon-local-world"


class OccupiedClusterError(RuntimeError):
    """The cluster of the kubeconfig has nodes that take pods, so it may not be a throw-away one."""


class KubeconfigError(RuntimeError):
    """The kubeconfig can't be read, or its cluster doesn't answer."""


class RealControlPlane:
    """A :class:`local.world.control_plane.ControlPlane` in real time.

    ``kubeconfig`` is that of a throw-away cluster; without one, a control plane of the minor ``kubernetes`` is built
    and run, and if that is ``recorded``, :meth:`recording` can be called. A cluster with nodes that take pods is
    refused, unless ``allow_nodes``. ``feature_gates`` are on in a control plane of its own.
    """

    in_real_time = True

    def __init__(
        self,
        kubeconfig: Path | None = None,
        *,
        kubernetes: str = binary.EMBEDDED,
        recorded: bool = False,
        allow_nodes: bool = False,
        feature_gates: Sequence[str] = (),
    ) -> None:
        self._path = kubeconfig
        self._feature_gates = feature_gates
        self.kubernetes = kubernetes
        self._recorded = recorded and kubeconfig is None
        self._allow_nodes = allow_nodes
        self._authenticator = TokenAuthenticator()
        self._stack = contextlib.ExitStack()
        self._client: Client
        self._own: ControlPlane | None = None
        self._account_token = ""
        self.log = RequestLog(with_bodies=self._recorded)
        self.url = ""
        self.certificate_authority = ""
        self.store: Store

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            stack.callback(sys.setswitchinterval, sys.getswitchinterval())
            sys.setswitchinterval(_SWITCH_SECONDS)
            stack.enter_context(self.log.recorded())
            if self._path is None:
                self._client = self._own_client(stack)
            else:
                self._client = self._client_of(self._path, stack)
            store = RemoteStore(self._client, now=RealTimeClock().now)
            stack.callback(store.close)
            self.store = store
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stack.close()

    def controllers(self) -> Sequence[Actor]:
        """None: the cluster's controllers run by themselves."""
        return ()

    def authenticate_functions(self, deployed: DeployedStack) -> None:
        """Authenticate the EKS tokens of these functions from now on."""
        self._authenticator.register(deployed)

    def relay_client(self) -> Client:
        """A client with a token of the relay's service account."""
        token = self._token(cluster_manifests.NAMESPACE, cluster_manifests.RELAY)
        return to_server(self.url, self.certificate_authority, lambda: token)

    def store_of_node(self, node: str) -> Store:
        """The store, whose writes are made as the node's kubelet, under the Node authorizer and NodeRestriction."""
        assert isinstance(self.store, RemoteStore)
        return self.store.as_user(User(f"system:node:{node}", ("system:nodes",)))

    def denied_requests(self) -> list[str]:
        """The requests so far that were answered with 403, one text each."""
        return self.log.denied()

    def call_webhooks(self, call: Call) -> None:
        """Not supported: the API server only calls URLs by TLS, and the functions' URLs exist in this process only."""
        raise NotImplementedError("a real control plane can't call a function of this process: leave relay=webhook out")

    def kubeconfig(self) -> str:
        """The text of an administrator's kubeconfig."""
        return self._kubeconfig

    def recording(self) -> Recording | None:
        """Every request and every state so far; None if this isn't a recorded control plane of its own."""
        if self._own is None or not self._recorded:
            return None
        return self._own.recording(self.log.bodies)

    def suspended(self) -> AbstractContextManager[None]:
        """While entered, the API server answers nothing.

        Raises:
            OccupiedClusterError: it isn't this control plane's own process.
        """
        if self._own is None:
            raise OccupiedClusterError("only an API server of our own can be suspended")
        return self._own.suspended()

    def _own_client(self, stack: contextlib.ExitStack) -> Client:
        webhook = stack.enter_context(TokenReviewWebhook(self._authenticator))
        address = (webhook.url, webhook.certificate_authority)
        own = ControlPlane(
            kubernetes=self.kubernetes,
            webhook=address,
            recorded=self._recorded,
            feature_gates=self._feature_gates,
        )
        self._own = stack.enter_context(own)
        self.url, self.certificate_authority, self._kubeconfig = own.url, own.certificate_authority, own.kubeconfig()
        client = own.client()
        stack.callback(client.close)
        impersonation.allow(client._configuration)  # noqa: SLF001 - only the local world impersonates
        return client

    def _client_of(self, path: Path, stack: contextlib.ExitStack) -> Client:
        configuration = _configuration(path)
        self._kubeconfig = path.read_text()
        self.url = configuration.host
        authority = configuration.ssl_ca_cert
        self.certificate_authority = Path(authority).read_text() if authority else ""
        impersonation.allow(configuration)
        client = Client(configuration)
        stack.callback(client.close)
        if not self._allow_nodes:
            _refuse_occupied(client)
        self._client = client
        self._create_account()
        self._account_token = self._token(_CLIENT_NAMESPACE, _CLIENT_ACCOUNT)
        self.log.authorization = self._authorization
        return client

    def _create_account(self) -> None:
        """Create the service account that impersonates functions: their clients can't send a client certificate."""
        account = {"metadata": {"name": _CLIENT_ACCOUNT}}
        binding = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": _CLIENT_ACCOUNT},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "namespace": _CLIENT_NAMESPACE, "name": _CLIENT_ACCOUNT}],
        }
        accounts = f"/api/v1/namespaces/{_CLIENT_NAMESPACE}/serviceaccounts"
        for path, obj in (
            (accounts, account),
            ("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding),
        ):
            try:
                self._client.create(path, obj)
            except ApiError as error:
                if error.reason != "AlreadyExists":
                    raise

    def _authorization(self, headers: Mapping[str, str]) -> Mapping[str, str]:
        """The headers by which a function's request is made as the function's user."""
        token = headers.get("authorization", "").removeprefix("Bearer ")
        user = self._authenticator(token) if token.startswith(TOKEN_PREFIX) else None
        if user is None:
            return headers
        return {**headers, "authorization": f"Bearer {self._account_token}", **impersonation.headers(user)}

    def _token(self, namespace: str, account: str) -> str:
        """A token of a service account."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        answer = self._client.create(path, {"spec": {"expirationSeconds": _TOKEN_SECONDS}})
        return str(json.loads(answer)["status"]["token"])


def kubernetes_version(kubeconfig: Path) -> str:
    """The minor version of a cluster, such as "1.36".

    Raises:
        KubeconfigError: the file can't be read, or the cluster doesn't answer.
    """
    client = Client(_configuration(kubeconfig), attempts=1)
    try:
        version = json.loads(client.get("/version"))
    except ApiError as error:
        raise KubeconfigError(f"the cluster of {kubeconfig} doesn't answer: {error.message}") from error
    finally:
        client.close()
    return f"{version['major']}.{version['minor'].rstrip('+')}"


def _configuration(kubeconfig: Path) -> Configuration:
    """The configuration of the kubeconfig's current context.

    Raises:
        KubeconfigError: the file can't be read.
    """
    configuration = Configuration()
    try:
        load_kube_config(config_file=str(kubeconfig), client_configuration=configuration)
    except (ConfigException, *MALFORMED) as error:
        raise KubeconfigError(f"{kubeconfig} is not a kubeconfig: {error}") from error
    return configuration


def _refuse_occupied(client: Client) -> None:
    """Refuse a cluster that somebody may use.

    Raises:
        OccupiedClusterError: it has nodes that aren't its control plane's, or that take the pods of anybody.
        KubeconfigError: it doesn't answer.
    """
    try:
        nodes = [node for page in client.list_pages(NODES.path()) for node in json.loads(page)["items"]]
    except ApiError as error:
        raise KubeconfigError(f"the cluster's nodes can't be listed: {error.message}") from error
    own = [node["metadata"]["name"] for node in nodes if _CONTROL_PLANE_ROLE not in node["metadata"].get("labels", {})]
    if own:
        raise OccupiedClusterError(f"the cluster has nodes of its own, such as {own[0]}; give one that is thrown away")
    schedulable = [node["metadata"]["name"] for node in nodes if _takes_pods(node["spec"])]
    if schedulable:
        name = schedulable[0]
        raise OccupiedClusterError(
            f"pods would run on the control plane's node {name} instead of new ones; keep them off it: "
            f"kubectl taint node {name} {_CONTROL_PLANE_ROLE}:NoSchedule"
        )


def _takes_pods(spec: Mapping[str, Any]) -> bool:
    """Whether a node with that spec takes pods that tolerate nothing, once it is Ready."""
    is_tainted = any(
        taint["effect"] in ("NoSchedule", "NoExecute") and not taint["key"].startswith(_CONDITION_TAINTS)
        for taint in spec.get("taints") or ()
    )
    return not is_tainted and not spec.get("unschedulable", False)
