"""What keeps a command from answering, in one line that says what to do about it.

Whoever asks at a desk lacks a file, a permission or a password far more often than the code has a fault, so those
have sentences of their own; anything else is a fault, and shown as one.
"""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, NoReturn

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator

FAILED, USAGE, INTERRUPTED = 1, 2, 130
"""Exit codes: it couldn't be done; asked for what isn't there; stopped by Ctrl-C."""

_DENIED = frozenset(
    {"AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "ExpiredToken", "ExpiredTokenException"}
)
_SIGNED_WRONG = frozenset(
    {"InvalidClientTokenId", "UnrecognizedClientException", "SignatureDoesNotMatch", "AuthFailure"}
)
_ACTION = re.compile(r"not authorized to perform:? ([\w-]+:\w+)")


class CommandError(RuntimeError):
    """A command that can't be carried out. ``code`` is its exit code; the text says why and what to do."""

    def __init__(self, message: str, *, code: int = FAILED) -> None:
        super().__init__(message)
        self.code = code


class UsageError(CommandError):
    """Asked for what isn't there, or in a way that isn't understood."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code=USAGE)


@contextlib.contextmanager
def one_line(command: str) -> Iterator[None]:
    """Turn what may go wrong while the body runs into one line on standard error and an exit code."""
    try:
        yield
    except CommandError as error:
        _stop(command, str(error), error.code)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    except BrokenPipeError:
        # whoever read our output has seen enough
        raise typer.Exit(0) from None
    except Exception as error:
        said = _said(error)
        if said is None:
            raise
        _stop(command, said, FAILED)


def _stop(command: str, said: str, code: int) -> NoReturn:
    typer.echo(f"tenon {command}: {' '.join(said.split())}", err=True)
    raise typer.Exit(code)


def _said(error: Exception) -> str | None:  # noqa: PLR0911 (a case for each)
    """The sentence for an error of the cluster's or AWS's; None: it is a fault of ours."""
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 (slow to import)

    from shared.cluster import errors  # noqa: PLC0415 (the same)
    from shared.cluster.connect import ClusterError  # noqa: PLC0415 (the same)
    from shared.cluster.kubeconfig import KubeconfigError  # noqa: PLC0415 (the same)

    match error:
        case KubeconfigError():
            return (
                f"{error}; make one by `aws eks update-kubeconfig --name CLUSTER`, name one by KUBECONFIG, or give "
                "files of `kubectl get … -o json` instead"
            )
        case errors.UnauthorizedError():
            return (
                f"the cluster doesn't accept your token ({error.message or error.reason}); sign in to AWS again, and "
                "see that your principal has an access entry on the cluster"
            )
        case errors.ForbiddenError():
            return f"{error.message or error}; reading needs get and list on it (docs/cli.md lists all)"
        case errors.UnavailableError():
            return f"{error.message or error}; see that the cluster is up and that your network and VPN reach it"
        case errors.ApiError() | ClusterError():
            return str(error)
        case ClientError():
            return _refused(error)
        case BotoCoreError():
            return _without_credentials(error)
    return None


def _refused(error: Exception) -> str:
    answer = getattr(error, "response", {}).get("Error", {})
    code, message = str(answer.get("Code", "")), str(answer.get("Message", ""))
    operation = getattr(error, "operation_name", "")
    if code in _DENIED and "xpired" not in code:
        action = _ACTION.search(message)
        return (
            f"AWS denies {action[1] if action else operation}; your principal needs it to read (docs/cli.md lists all)"
        )
    if code in _SIGNED_WRONG or "xpired" in code:
        return f"AWS doesn't accept your credentials ({code}); sign in again, such as by `aws sso login`"
    return f"AWS refuses {operation}: {message or code}"


def _without_credentials(error: Exception) -> str:
    kind = type(error).__name__
    if kind in {"NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError", "TokenRetrievalError"}:
        return f"no AWS credentials ({error}); sign in, such as by `aws sso login`, or set AWS_PROFILE"
    if kind == "NoRegionError":
        return "no AWS Region is set; give --region, or set AWS_REGION"
    return f"AWS can't be asked: {error}"
