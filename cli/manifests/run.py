"""Runs ``tenon manifests``: the objects that Tenon needs in the cluster, as YAML for ``kubectl apply`` or GitOps."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cli.cluster import regions
from cli.errors import UsageError
from cli.file_contents import read_bytes
from infra import function_sizes
from infra.cluster.kubernetes import cluster_manifests, flow_schemas, webhook_configuration
from infra.options import formats, stack_options
from shared.base.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from infra.cluster.kubernetes.cluster_manifests import Obj

_PATH = re.compile(r"[A-Za-z0-9_-]{32,256}")
_ROLE = re.compile(r"arn:aws[a-z-]*:iam::\d{12}:role/[\w+=,.@/-]+")
_IMAGE = re.compile(r"([\w.-]+(:\d+)?/)?[a-z0-9._/-]+(:[\w.-]{1,128})?(@sha256:[0-9a-f]{64})?")


class Relay(Struct, kw_only=True):
    """The relay's pods, as options say them: without ``image_uri`` there are none."""

    image_uri: str
    role_arn: str
    tolerations: str


def text(
    cluster: str, region: str, relay: Relay, webhook: Sequence[Obj], *, buffers: bool, node_groups: bool, shadow: bool
) -> str:
    """The objects as YAML.

    Raises:
        UsageError: an option is invalid.
    """
    tolerated = _tolerations(relay.tolerations)
    if shadow:
        return cluster_manifests.to_yaml(cluster_manifests.access([function_sizes.SHADOW]))
    optional = {
        function_sizes.BUFFERS: buffers,
        function_sizes.NODE_GROUPS: node_groups,
        function_sizes.RELAY: not relay.image_uri and not webhook,
    }
    functions = [name for name in function_sizes.ALL if optional.get(name, True)]
    objects = [
        *cluster_manifests.kinds(),
        *cluster_manifests.access(functions, node_groups=node_groups),
        *flow_schemas.flow_schemas(functions, relay_pod=bool(relay.image_uri)),
    ]
    if relay.image_uri:
        objects += cluster_manifests.relay(
            cluster=cluster,
            region=region,
            image=relay.image_uri,
            role_arn=relay.role_arn,
            tolerations=tolerated,
        )
    return cluster_manifests.to_yaml([*objects, *webhook])


def check(cluster: str, *, region: str, relay: Relay) -> None:
    """Refuse names that AWS or the kubelet would refuse later.

    Raises:
        UsageError: a name is invalid.
    """
    try:
        stack_options.cluster_name(cluster, option="NAME")
    except stack_options.OptionError as error:
        raise UsageError(str(error)) from error
    regions.existing(region)
    if relay.image_uri and not _IMAGE.fullmatch(relay.image_uri):
        raise UsageError(f"--image={relay.image_uri}: must be an image such as REGISTRY/tenon-relay:0.1.0")
    if relay.role_arn and not _ROLE.fullmatch(relay.role_arn):
        raise UsageError(
            f"--role-arn={relay.role_arn}: must be a role's ARN, such as arn:aws:iam::123456789012:role/relay"
        )
    _tolerations(relay.tolerations)


def webhook(url: str, path: Path | None) -> list[Obj]:
    """The webhook's configuration, if there is one.

    Raises:
        UsageError: half of its URL is missing, or the file can't be read.
    """
    if not url and path is None:
        return []
    if not url or path is None:
        raise UsageError("--webhook-url and --webhook-path: give both")
    if not url.startswith("https://"):
        raise UsageError(f"--webhook-url={url}: must be an https:// URL, the stack's output WebhookUrl")
    secret = read_bytes(path).decode().strip()
    if not _PATH.fullmatch(secret):
        raise UsageError(f"--webhook-path={path}: must have one line of 32 or more letters, digits, - and _")
    return [webhook_configuration.configuration(f"{url.rstrip('/')}/{secret}")]


def _tolerations(text: str) -> tuple[Mapping[str, str], ...]:
    """The tolerations of the option.

    Raises:
        UsageError: they can't be parsed.
    """
    try:
        return tuple(formats.toleration(part, "--tolerations") for part in text.split(",") if part)
    except stack_options.OptionError as error:
        raise UsageError(str(error)) from error
