"""The messages for errors of the cluster, its kubeconfig and AWS: what happened, and what to do.

Missing files, permissions and credentials are far more common than bugs, so they have messages of their own. Any other
exception is a bug and is raised.
"""

from __future__ import annotations

import re

from botocore.exceptions import BotoCoreError, ClientError

from infra.installation import MissingExtraError
from shared.cluster import errors
from shared.cluster.connect import ClusterError
from shared.cluster.kubeconfig import KubeconfigError

_ACCESS_DENIED = frozenset(
    {"AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "ExpiredToken", "ExpiredTokenException"}
)
_INVALID_CREDENTIALS = frozenset(
    {"InvalidClientTokenId", "UnrecognizedClientException", "SignatureDoesNotMatch", "AuthFailure"}
)
_ACTION = re.compile(r"not authorized to perform:? ([\w-]+:\w+)")


def message_of(error: Exception) -> str | None:
    """The message for an error of the cluster, AWS or the installation; None for a bug."""
    match error:
        case ClientError():
            return _aws_error_message(error)
        case BotoCoreError():
            return _aws_unreachable(error)
    return _cluster_error(error)


def _cluster_error(error: Exception) -> str | None:
    match error:
        case KubeconfigError():
            return (
                f"{error}; create one with `aws eks update-kubeconfig --name CLUSTER`, set KUBECONFIG, or give "
                "--file with files of `kubectl get … -o json`"
            )
        case errors.UnauthorizedError():
            return (
                f"the cluster doesn't accept your token ({error.message or error.reason}); sign in to AWS again, and "
                "check that your IAM principal has an access entry on the cluster"
            )
        case errors.ForbiddenError():
            return f"{error.message or error}; docs/cli.md lists the permissions that commands need"
        case errors.UnavailableError():
            return f"{error.message or error}; check that the cluster is up and reachable from your network or VPN"
        case errors.ApiError() | ClusterError() | MissingExtraError():
            return str(error)
    return None


def _aws_error_message(error: Exception) -> str:
    response = getattr(error, "response", {}).get("Error", {})
    code, message = str(response.get("Code", "")), str(response.get("Message", ""))
    operation = getattr(error, "operation_name", "")
    expired = "xpired" in code
    if code in _ACCESS_DENIED and not expired:
        action = _ACTION.search(message)
        return f"AWS denies {action[1] if action else operation}; your IAM principal needs it (docs/cli.md lists all)"
    if code in _INVALID_CREDENTIALS or expired:
        return f"AWS doesn't accept your credentials ({code}); sign in again, such as with `aws sso login`"
    return f"AWS refuses {operation}: {message or code}"


def _aws_unreachable(error: Exception) -> str:
    name = type(error).__name__
    if name in {"NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError", "TokenRetrievalError"}:
        return f"no AWS credentials ({error}); sign in, such as with `aws sso login`, or set AWS_PROFILE"
    if name == "NoRegionError":
        return "no AWS Region is set; give --region, or set AWS_REGION"
    return f"AWS can't be called: {error}"
