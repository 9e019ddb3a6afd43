"""A client for whoever isn't a function: the relay by its pod's service account, people by their kubeconfig.

Apart from ``connect``, because the official client's loaders cost time to import that a function should not spend.
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
    """There is no configuration, or it can't be used; the message says which."""


def client(
    environ: Mapping[str, str], *, context: str = "", attempts: int = ATTEMPTS, user_agent: str = "tenon"
) -> Client:
    """A client by ``KUBECONFIG`` if that is set, else by the service account in a pod, else by ``~/.kube/config``.

    Raises:
        KubeconfigError: none of them is there, or it can't be used.
    """
    configuration = Configuration()
    file = environ.get("KUBECONFIG")
    try:
        if file or _IN_CLUSTER not in environ:
            load_kube_config(config_file=file, context=context or None, client_configuration=configuration)
        else:
            load_incluster_config(client_configuration=configuration)
    except ConfigException as error:
        raise KubeconfigError(f"no cluster to talk to: {error}") from error
    return Client(configuration, attempts=attempts, user_agent=user_agent)
