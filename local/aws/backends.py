"""moto's in-memory backends, for state that is read or written directly instead of through an API.

moto has no types, so its values are ``Any`` here.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
import weakref
from typing import TYPE_CHECKING, Any

import boto3
from moto.core import DEFAULT_ACCOUNT_ID
from moto.core import utils as moto_utils

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

MotoObject = Any
"""An object of moto, which has no types."""

ACCOUNT = str(DEFAULT_ACCOUNT_ID)


def ec2(region: str) -> Any:
    """EC2's backend."""
    from moto.ec2.models import ec2_backends

    return ec2_backends[ACCOUNT][region]


def sqs(region: str) -> Any:
    """SQS's backend."""
    from moto.sqs.models import sqs_backends

    return sqs_backends[ACCOUNT][region]


def events(region: str) -> Any:
    """EventBridge's backend."""
    from moto.events.models import events_backends

    return events_backends[ACCOUNT][region]


def iam() -> Any:
    """IAM's backend."""
    from moto.iam.models import iam_backends

    return iam_backends[ACCOUNT]["aws"]


def ssm(region: str) -> Any:
    """Systems Manager's backend."""
    from moto.ssm.models import ssm_backends

    return ssm_backends[ACCOUNT][region]


def eks(region: str) -> Any:
    """EKS's backend."""
    from moto.eks.models import eks_backends

    return eks_backends[ACCOUNT][region]


def autoscaling(region: str) -> Any:
    """Auto Scaling's backend."""
    from moto.autoscaling.models import autoscaling_backends

    return autoscaling_backends[ACCOUNT][region]


def lambda_functions(region: str) -> Any:
    """Lambda's backend."""
    from moto.awslambda.models import get_backend

    return get_backend(ACCOUNT, region)


def s3() -> Any:
    """S3's backend, one for all Regions."""
    from moto.s3.models import s3_backends

    return s3_backends[ACCOUNT]["aws"]


_clients: weakref.WeakKeyDictionary[boto3.Session, dict[str, Any]] = weakref.WeakKeyDictionary()


def client(service: str) -> Any:
    """A client of the default session, of an account's administrator; made once, which takes longer than a call."""
    assert boto3.DEFAULT_SESSION is not None
    clients = _clients.setdefault(boto3.DEFAULT_SESSION, {})
    if service not in clients:
        clients[service] = boto3.client(service)  # type: ignore[call-overload]  # typed for literals
    return clients[service]


@contextlib.contextmanager
def replaced(owner: object, name: str, value: object) -> Iterator[None]:
    """While entered, the attribute of a class, module or object has this value; it need not exist before."""
    # a class's as it is stored: a static method stays one
    original = inspect.getattr_static(owner, name, None) if isinstance(owner, type) else getattr(owner, name, None)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if original is None:
            delattr(owner, name)
        else:
            setattr(owner, name, original)


@contextlib.contextmanager
def on_clock(now: Callable[[], datetime]) -> Iterator[None]:
    """While entered, all of moto's modules use this clock.

    moto computes all times by one function, which its modules import by name.
    """
    original = moto_utils.utcnow

    def utcnow() -> datetime:
        return now().replace(tzinfo=None)

    _replace_in_modules(original, utcnow)
    try:
        yield
    finally:
        _replace_in_modules(utcnow, original)


def _replace_in_modules(old: object, new: object) -> None:
    for name, module in list(sys.modules.items()):
        if name.startswith("moto.") and vars(module).get("utcnow") is old:
            vars(module)["utcnow"] = new
