"""Clients outside Lambda: the relay with its pod's service account, the command line with a kubeconfig.

Separate from ``connect``, because the official client's config loaders would slow down a function's cold start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kubernetes.client.configuration import Configuration
from kubernetes.config import ConfigException, load_incluster_config, load_kube_config

from shared.cluster.client import ATTEMPTS, Client

if TYPE_CHECKING:
    from collections.abc import Mapping

_IN_CLUSTER = "KUBERNETES_SERVICE_HOST"


class KubeconfigError(RuntimeError):
    """There is no kubeconfig, or it is invalid; the message says which."""


def client(
    environ: Mapping[str, str], *, context: str = "", attempts: int = ATTEMPTS, user_agent: str = "tenon"
) -> Client:
    """A client by ``KUBECONFIG`` if set, else by the service account in a pod, else by ``~/.kube/config``.

    Raises:
        KubeconfigError: none of them exists, or it is invalid.
    """
    configuration = Configuration()
    path = environ.get("KUBECONFIG")
    try:
        if path or _IN_CLUSTER not in environ:
            load_kube_config(config_file=path, context=context or None, client_configuration=configuration)
        else:
            load_incluster_config(client_configuration=configuration)
    except ConfigException as error:
        raise KubeconfigError(f"no cluster configured: {error}") from error
    return Client(configuration, attempts=attempts, user_agent=user_agent)
