"""Errors of commands: one line on standard error that says what to do, and an exit code.

Missing files, permissions and credentials are far more common than bugs, so they have messages of their own. Any other
exception is a bug and is raised.
"""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, NoReturn

import typer

from cli import program

if TYPE_CHECKING:
    from collections.abc import Iterator

FAILED, USAGE, INTERRUPTED = 1, 2, 130
"""Exit codes: the command failed; a usage error; interrupted by Ctrl-C."""

_ACCESS_DENIED = frozenset(
    {"AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "ExpiredToken", "ExpiredTokenException"}
)
_INVALID_CREDENTIALS = frozenset(
    {"InvalidClientTokenId", "UnrecognizedClientException", "SignatureDoesNotMatch", "AuthFailure"}
)
_ACTION = re.compile(r"not authorized to perform:? ([\w-]+:\w+)")


class CommandError(RuntimeError):
    """A command failed. ``code`` is its exit code; the text says why and what to do."""

    def __init__(self, message: str, *, code: int = FAILED) -> None:
        super().__init__(message)
        self.code = code


class UsageError(CommandError):
    """An object that doesn't exist, or an option or argument that isn't valid."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code=USAGE)


@contextlib.contextmanager
def errors_as_one_line(command: str) -> Iterator[None]:
    """Turn errors inside into one line on standard error and an exit code."""
    try:
        yield
    except CommandError as error:
        _exit(command, str(error), error.code)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    except BrokenPipeError:
        # the reader of our output, such as head, closed the pipe
        raise typer.Exit(0) from None
    except Exception as error:
        message = message_of(error)
        if message is None:
            raise
        _exit(command, message, FAILED)


def _exit(command: str, message: str, code: int) -> NoReturn:
    typer.echo(f"{program.name()} {command}: {' '.join(message.split())}", err=True)
    raise typer.Exit(code)


def message_of(error: Exception) -> str | None:
    """The message for an error of the cluster or AWS; None for a bug."""
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 (slow to import)

    match error:
        case ClientError():
            return _aws_error_message(error)
        case BotoCoreError():
            return _aws_unreachable(error)
    return _cluster_error(error)


def _cluster_error(error: Exception) -> str | None:
    from shared.cluster import errors  # noqa: PLC0415 (slow to import)
    from shared.cluster.connect import ClusterError  # noqa: PLC0415 (slow to import)
    from shared.cluster.kubeconfig import KubeconfigError  # noqa: PLC0415 (slow to import)

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
        case errors.ApiError() | ClusterError():
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
