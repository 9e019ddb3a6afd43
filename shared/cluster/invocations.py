"""What the handlers of all functions have in common: reports of failures, and work that is tried again later."""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from shared.base.metrics import report_unwell
from shared.base.struct import MutableStruct
from shared.cluster.errors import ApiError
from shared.cluster.lease import LeaseHeldError, LeaseLostError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aws_lambda_powertools import Logger
    from aws_lambda_powertools.utilities.typing import LambdaContext

Handler = Any
"""A function's handler: takes an event and a context."""
_TRANSIENT: tuple[type[Exception], ...] = (ApiError, BotoCoreError, ClientError)
_SLOW_SHARE = 0.8


def entry_point(
    logger: Logger, *, respond: Callable[[dict[str, Any], Any], object] | None = None
) -> Callable[[Handler], Handler]:
    """Decorates a handler: its log lines name the invocation; failures and durations near the timeout are reported.

    A failure is raised on. ``respond`` makes Lambda's answer of the event and what the handler returns. For batches of
    a queue it is :func:`shared.base.queues.respond`: the handler returns how many seconds each message waits until it
    is delivered again, by id.
    """
    function = logger.service

    def decorate(handle: Handler) -> Handler:
        @functools.wraps(handle)
        def invoked(event: dict[str, Any], context: LambdaContext) -> object:
            allowed = context.get_remaining_time_in_millis()
            try:
                answer = handle(event, context)
                if respond is not None:
                    answer = respond(event, answer)
            except Exception as error:
                report_unwell("function-errors", f"{function} failed: {type(error).__name__}")
                raise
            left = context.get_remaining_time_in_millis()
            if left < (1 - _SLOW_SHARE) * allowed:
                report_unwell("function-slow", f"{function} took {(allowed - left) / 1000:.0f} s")
            return answer

        return logger.inject_lambda_context(invoked)

    return decorate


class Attempt(MutableStruct):
    """Whether the body of :func:`attempt` has succeeded, or another function had the lease."""

    succeeded: bool = False
    lease_held: bool = False


@contextlib.contextmanager
def attempt(
    work: str, logger: Logger, *, transient: tuple[type[Exception], ...] = (), **fields: object
) -> Iterator[Attempt]:
    """Run the body, which is tried again later if the API server or AWS fails or another function has the lease.

    Such an error, or one of ``transient``, is logged with ``work`` (such as "Provisioning") and ``fields``, and isn't
    raised on.
    """
    outcome = Attempt()
    try:
        yield outcome
    except (LeaseHeldError, LeaseLostError) as error:
        outcome.lease_held = True
        logger.info("Waiting for the lease", extra={**fields, "why": str(error)})
    except (*_TRANSIENT, *transient) as error:
        extra = {**fields, "error": type(error).__name__, "why": str(error)}
        logger.warning("%s failed and will be tried again", work, extra=extra)
    else:
        outcome.succeeded = True
