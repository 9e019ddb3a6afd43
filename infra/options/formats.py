"""The formats of single values, as readers for the rules of texts and names."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from infra.options.rules import OptionError, refused
from shared.api import buffer_signals
from shared.base import hints

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def anything(value: str, _option: str) -> str:
    """The same text, which nothing can be checked of."""
    return value


def matching(pattern: str, allowed: str) -> Callable[[str, str], str]:
    """A reader of texts that match the pattern, which ``allowed`` says in words."""

    def read(value: str, option: str) -> str:
        if not re.fullmatch(pattern, value):
            raise refused(option, value, allowed)
        return value

    return read


fleet = matching(r"[0-9A-Za-z][0-9A-Za-z-]{0,39}", 'letters, digits and "-", at most 40')
kms_key = matching(
    r"arn:aws[a-z-]*:kms:[a-z0-9-]+:\d{12}:key/[\w-]+", "ARNs of KMS keys (not aliases) separated by commas"
)
boundary = matching(
    r"(arn:aws[a-z-]*:iam::(\d{12}|aws):policy/)?([\w+=,.@-]+/)*[\w+=,.@-]{1,128}",
    "the name or ARN of a managed policy of IAM",
)
topic = matching(r"arn:aws[a-z-]*:sns:[a-z0-9-]+:\d{12}:[\w-]{1,256}(\.fifo)?", "the ARN of an SNS topic")
event_bus = matching(r"[/.\-_A-Za-z0-9]{1,256}", "the name of an event bus of this account and Region")


_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def toleration(text: str, option: str) -> Mapping[str, str]:
    """The toleration of a taint as kubectl writes it (``KEY[=VALUE][:EFFECT]``); ``*`` tolerates every taint.

    Raises:
        OptionError: it has no key, or an unknown effect.
    """
    taint, colon, effect = text.partition(":")
    key, equals, value = taint.partition("=")
    if not key or (colon and effect not in _EFFECTS):
        effects = ", ".join(_EFFECTS)
        raise refused(
            option, text, f"taints KEY[=VALUE][:EFFECT] separated by commas, with an effect of {effects}; or *"
        )
    matched = {"operator": "Exists"} if not equals else {"operator": "Equal", "value": value}
    return {**({} if key == "*" else {"key": key}), **matched, **({"effect": effect} if effect else {})}


_OIDC_PROVIDER = re.compile(r"[a-z0-9.-]+\.[a-z0-9.-]+(/[\w.-]+)*")


def oidc_provider(issuer: str, option: str) -> str:
    """The host and path of an OIDC issuer, as IAM names its provider; "" for none.

    Raises:
        OptionError: it isn't an issuer, such as an ARN.
    """
    provider = issuer.removeprefix("https://").rstrip("/")
    if provider and not _OIDC_PROVIDER.fullmatch(provider):
        raise refused(option, issuer, "the cluster's OIDC issuer, such as oidc.eks.REGION.amazonaws.com/id/ID")
    return provider


def source(annotation: str) -> Callable[[str, str], str]:
    """A reader of names of queues or alarms, as the annotation of a CapacityBuffer takes them."""

    def read(name: str, option: str) -> str:
        problem = next(buffer_signals.problems({annotation: name}), "")
        # A wildcard in an ARN would allow others.
        if problem or {"*", "?"} & set(name):
            raise refused(option, name, f"names separated by commas, without * and ?; {problem}")
        return name

    return read


_SOURCE = re.compile(r"[^*?]{1,256}")
_DETAIL_TYPE = re.compile(r".{1,128}")


def event(text: str, option: str) -> buffer_signals.Event:
    """The events of SOURCE/DETAIL-TYPE.

    Raises:
        OptionError: a part is missing, or they are no users' events.
    """
    parsed = buffer_signals.event(text)
    if parsed is None or not _SOURCE.fullmatch(parsed.source) or not _DETAIL_TYPE.fullmatch(parsed.detail_type):
        raise refused(option, text, "SOURCE/DETAIL-TYPE separated by commas")
    if parsed.source == hints.SCHEDULE or parsed == buffer_signals.ALARM_CHANGED:
        raise OptionError(f"{option}={text}: is a schedule or an alarm; name alarms in bufferAlarms")
    return parsed
