"""moto's in-memory backends, where a fact of the world is put or read directly rather than through an API.

moto ships no types we could check against, so what comes from it is ``Any`` here and typed by whoever uses it.
"""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any

from moto.core import DEFAULT_ACCOUNT_ID
from moto.core import utils as moto_utils

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

ACCOUNT = str(DEFAULT_ACCOUNT_ID)


def ec2(region: str) -> Any:  # noqa: ANN401 - see the module
    """EC2's."""
    from moto.ec2.models import ec2_backends  # noqa: PLC0415 - slow to import, and only a world needs it

    return ec2_backends[ACCOUNT][region]


def sqs(region: str) -> Any:  # noqa: ANN401 - see the module
    """SQS's."""
    from moto.sqs.models import sqs_backends  # noqa: PLC0415 - the same

    return sqs_backends[ACCOUNT][region]


def events(region: str) -> Any:  # noqa: ANN401 - see the module
    """EventBridge's."""
    from moto.events.models import events_backends  # noqa: PLC0415 - the same

    return events_backends[ACCOUNT][region]


def iam() -> Any:  # noqa: ANN401 - see the module
    """IAM's."""
    from moto.iam.models import iam_backends  # noqa: PLC0415 - the same

    return iam_backends[ACCOUNT]["aws"]


def ssm(region: str) -> Any:  # noqa: ANN401 - see the module
    """Systems Manager's."""
    from moto.ssm.models import ssm_backends  # noqa: PLC0415 - the same

    return ssm_backends[ACCOUNT][region]


def eks(region: str) -> Any:  # noqa: ANN401 - see the module
    """EKS's."""
    from moto.eks.models import eks_backends  # noqa: PLC0415 - the same

    return eks_backends[ACCOUNT][region]


def s3() -> Any:  # noqa: ANN401 - see the module
    """S3's, which is one for all Regions."""
    from moto.s3.models import s3_backends  # noqa: PLC0415 - the same

    return s3_backends[ACCOUNT]["aws"]


@contextlib.contextmanager
def replaced(owner: object, name: str, value: object) -> Iterator[None]:
    """While entered, an attribute of one of moto's classes or modules is ours, whether it has one itself or not."""
    before = getattr(owner, name, None)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if before is None:
            delattr(owner, name)
        else:
            setattr(owner, name, before)


@contextlib.contextmanager
def on_clock(now: Callable[[], datetime]) -> Iterator[None]:
    """While entered, moto's time is the world's, in every module that asks for it.

    moto computes all times from one function, which its modules import by name.
    """
    original = moto_utils.utcnow

    def utcnow() -> datetime:
        return now().replace(tzinfo=None)

    _swap(original, utcnow)
    try:
        yield
    finally:
        _swap(utcnow, original)


def _swap(old: object, new: object) -> None:
    for name, module in list(sys.modules.items()):
        if name.startswith("moto.") and vars(module).get("utcnow") is old:
            vars(module)["utcnow"] = new
