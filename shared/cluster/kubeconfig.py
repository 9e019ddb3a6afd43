"""Clients outside Lambda: the relay with its pod's service account, the command line with a kubeconfig.

Separate from ``connect``, because the official client's config loaders would slow down a function's cold start.
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING

from kubernetes.client.configuration import Configuration
from kubernetes.config import ConfigException, load_incluster_config, load_kube_config
from yaml import YAMLError

from shared.cluster.client import ATTEMPTS, Client

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MALFORMED = (OSError, YAMLError, ValueError, TypeError, AttributeError, LookupError, RecursionError)
"""What the official client's loader raises for a file of another shape, besides ConfigException."""
_IN_CLUSTER = "KUBERNETES_SERVICE_HOST"


class KubeconfigError(RuntimeError):
    """There is no kubeconfig, or it is invalid; the message says which."""


@contextlib.contextmanager
def _errors_of_plugins() -> Iterator[None]:
    """Turn what the official client only logs, on the root logger, into an error: it would continue without a token.

    Raises:
        KubeconfigError: the command of the kubeconfig that gets a token, such as `aws eks get-token`, failed.
    """
    problems: list[str] = []

    def collect(record: logging.LogRecord) -> bool:
        if record.levelno < logging.ERROR:
            return True
        problems.append(" ".join(str(part) for part in (record.msg, *(record.args or ()))))
        return False

    root = logging.getLogger()
    root.addFilter(collect)
    try:
        yield
    finally:
        root.removeFilter(collect)
    if problems:
        raise KubeconfigError(f"the kubeconfig's command gives no token for the cluster: {'; '.join(problems)}")


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
            with _errors_of_plugins():
                load_kube_config(config_file=path, context=context or None, client_configuration=configuration)
        else:
            load_incluster_config(client_configuration=configuration)
    except ConfigException as error:
        raise KubeconfigError(f"no cluster configured: {error}") from error
    except MALFORMED as error:
        raise KubeconfigError(f"no cluster configured: {path or '~/.kube/config'} is no kubeconfig: {error}") from error
    if not configuration.host.startswith(("https://", "http://")):
        raise KubeconfigError(f'no cluster configured: the server "{configuration.host}" is not an https:// URL')
    if any(not token.isprintable() for token in configuration.api_key.values()):
        raise KubeconfigError("no cluster configured: the user's token has line breaks or control characters")
    return Client(configuration, attempts=attempts, user_agent=user_agent)
