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
from infra.options.stack_options import OptionError, StackOptions

if TYPE_CHECKING:
    from collections.abc import Mapping

_SWITCHES: Mapping[str, tuple[str, str, str]] = {
    "apply": ("clusterSide", "printed", "applied"),
    "kinds": ("kinds", "kept", "applied"),
    "capacity_buffers": ("capacityBuffers", "kept", "applied"),
    "reserve": ("reservedConcurrency", "false", "true"),
    "tracing": ("tracing", "off", "active"),
    "standby": ("standby", "off", "on"),
    "node_groups": ("nodeGroups", "off", "on"),
    "commitments": ("commitments", "off", "on"),
}
"""The key of each field with a bool, and its values for False and True."""
_TEXTS: Mapping[str, str] = {
    "bundle": "bundle",
    "relay": "relay",
    "relay_memory": "relayMemory",
    "sweep_memory": "sweepMemory",
    "relay_image": "relayImage",
    "webhook_digest": "webhookDigest",
    "oidc_provider": "oidcProvider",
    "function_architecture": "functionArchitecture",
    "node_role": "nodeRole",
    "alarm_topic": "alarmTopic",
    "observability": "observability",
    "planned_pods": "plannedPods",
    "buffer_event_bus": "bufferEventBus",
    "commitment_share": "commitmentShare",
}
_LISTS: Mapping[str, str] = {
    "node_roles": "nodeRoles",
    "subnets": "subnets",
    "security_groups": "securityGroups",
    "kms_keys": "kmsKeys",
    "buffer_queues": "bufferQueues",
    "buffer_alarms": "bufferAlarms",
    "buffer_events": "bufferEvents",
}
_ELSEWHERE: Mapping[str, str] = {
    "fleet": "clusters of a fleet are deployed together, by cdk deploy (docs/fleets.md)",
    "shadow": "shadow mode is a stack without Tenon's other resources: deploy it by cdk deploy (docs/shadow-mode.md)",
}
_ARCHITECTURES, _TOLERATIONS = "relayArchitecture", "relayTolerations"
_BOTH = frozenset({"arm64", "amd64"})


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
        raise OptionError(_with_fields(str(error))) from None
    return dataclasses.replace(
        parsed,
        relay_tolerations=options.relay_tolerations,
        alarm_topic=options.alarm_topic if late_topic else parsed.alarm_topic,
        kms_keys=options.kms_keys if late_keys else parsed.kms_keys,
    )


def _context(options: StackOptions) -> dict[str, object]:
    """The context that means the same; fields with their defaults are left out."""
    defaults = {field.name: field.default for field in dataclasses.fields(StackOptions)}
    given = {name: value for name, default in defaults.items() if (value := getattr(options, name)) != default}
    context: dict[str, object] = {}
    for name, value in given.items():
        if name in _SWITCHES:
            key, off, on = _SWITCHES[name]
            context[key] = on if value else off
        elif name in _TEXTS:
            context[_TEXTS[name]] = value
        elif name in _LISTS:
            context[_LISTS[name]] = value if isinstance(value, str) else [str(part) for part in value]
    if "relay_architectures" in given:
        names = set(options.relay_architectures)
        context[_ARCHITECTURES] = "both" if names == _BOTH else ",".join(sorted(names))
    if options.relay_tolerations:
        context[_TOLERATIONS] = "*"  # Kubernetes' own form isn't the context's; only that there are any is checked
    return context


def _with_fields(message: str) -> str:
    """A message about context keys as a message about fields."""
    fields = {key: name for name, key in (*_TEXTS.items(), *_LISTS.items())}
    fields |= {key: name for name, (key, _, _) in _SWITCHES.items()}
    fields |= {_ARCHITECTURES: "relay_architectures", _TOLERATIONS: "relay_tolerations"}
    for name, (key, off, on) in _SWITCHES.items():
        message = message.replace(f"-c {key}={off}", f"{name}=False").replace(f"-c {key}={on}", f"{name}=True")
    return re.sub(r"-c (\w+)", lambda match: fields.get(match[1], match[1]), message)
