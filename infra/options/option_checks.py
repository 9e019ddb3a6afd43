"""Checks of options that an app gives as ``StackOptions``, by the rules of context keys.

The options are turned into the context that means the same, which ``stack_options.parse`` reads. So a rule is written
once, and a message names the field instead of the key.
"""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

from aws_cdk import Token

from infra.options import stack_options
from infra.options.rules import OptionError
from infra.options.stack_options import OPTIONS, StackOptions

if TYPE_CHECKING:
    from collections.abc import Mapping

_ELSEWHERE: Mapping[str, str] = {
    "fleet": "clusters of a fleet are deployed together, by cdk deploy (docs/fleets.md)",
    "shadow": "shadow mode is a stack without Tenon's other resources: deploy it by cdk deploy (docs/shadow-mode.md)",
}
_OF_THE_CONTEXT = frozenset({*_ELSEWHERE, "shadow_interval", "shadow_pools"})


def checked(options: StackOptions, *, region: str | None) -> StackOptions:
    """The options in their canonical form. ``region`` is where they are deployed, None if that isn't known.

    ARNs of the app's own resources are tokens while the app runs, and are not checked.

    Raises:
        OptionError: a value is invalid, or the option is only for the context.
    """
    for name, reason in _ELSEWHERE.items():
        if getattr(options, name):
            raise OptionError(f"{name}={getattr(options, name)}: {reason}")
    if Token.is_unresolved(options.cluster):
        raise OptionError(
            "cluster: must be a name that is known before the deployment; names of resources follow from it"
        )
    late_topic = Token.is_unresolved(options.alarm_topic)
    late_keys = any(Token.is_unresolved(key) for key in options.kms_keys)
    known = dataclasses.replace(
        options,
        alarm_topic="" if late_topic else options.alarm_topic,
        kms_keys=() if late_keys else options.kms_keys,
    )
    try:
        (cluster,) = stack_options.clusters({"cluster": [options.cluster]})
        parsed = stack_options.parse(_context(known), cluster=cluster, region=region)
    except OptionError as error:
        raise OptionError(_about_fields(str(error))) from None
    return dataclasses.replace(
        parsed,
        relay_tolerations=options.relay_tolerations,
        alarm_topic=options.alarm_topic if late_topic else parsed.alarm_topic,
        kms_keys=options.kms_keys if late_keys else parsed.kms_keys,
    )


def _context(options: StackOptions) -> dict[str, object]:
    """The context that means the same; fields with their defaults are left out."""
    return {
        option.key: option.rule.written(value)
        for name, option in OPTIONS.items()
        if name not in _OF_THE_CONTEXT and (value := getattr(options, name)) != option.rule.default
    }


def _about_fields(message: str) -> str:
    """A message about context keys as a message about fields."""
    for name, option in OPTIONS.items():
        if isinstance(option.rule.default, bool):
            for value in (False, True):
                message = message.replace(f"-c {option.key}={option.rule.written(value)}", f"{name}={value}")
    fields = {option.key: name for name, option in OPTIONS.items()}
    return re.sub(r"-c (\w+)", lambda match: fields.get(match[1], match[1]), message)
