"""What the bootstrap of every AMI family needs to join a node to its cluster: labels, taints, kubelet settings.

Nothing in it belongs to one NodeClaim, so that the NodeClaims of a launch group share a launch template.

The user data of AL2 and AL2023 is a MIME multi-part archive, whose parts cloud-init and nodeadm process in order: the
user's parts are read, and written together with Tenon's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shared.api import labels
from shared.api.kubelet import Kubelet, kubelet_of
from shared.api.kubernetes import Taint
from shared.base.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Mapping
    from email.message import EmailMessage

    from shared.cluster.connect import ClusterInfo

UNREGISTERED = Taint(key=labels.UNREGISTERED_TAINT, effect="NoExecute")
"""Keeps pods away until the node is registered and has its labels."""

_RESERVED_DOMAINS = ("kubernetes.io", "k8s.io")
_ALLOWED_PREFIXES = ("node.kubernetes.io", "kubelet.kubernetes.io")
_ALLOWED = frozenset(
    {
        labels.ARCH,
        labels.OS,
        labels.HOSTNAME,
        labels.ZONE,
        labels.REGION,
        *(alias for alias in labels.ALIASES if alias.startswith(("beta.kubernetes.io/", "failure-domain."))),
    }
)

SHELL = 'text/x-shellscript; charset="us-ascii"'
_UNREADABLE = (RecursionError, UnicodeError, LookupError, AttributeError, TypeError, AssertionError)
"""What Python's email package raises for headers that nobody would write, such as a thousand open parentheses."""
_MIME_START = ("mime-version:", "content-type: multipart")


class UserDataError(ValueError):
    """The class's ``spec.userData`` can't be merged; the message names the field and the problem."""


class Bootstrap(Struct, kw_only=True):
    """The inputs of user data. ``raid``: the instance store is striped for ephemeral storage.

    ``kubelet`` has values in place of expressions.
    """

    cluster: ClusterInfo
    labels: Mapping[str, str] = {}
    taints: tuple[Taint, ...] = ()
    kubelet: Mapping[str, Any] | None = None
    user_data: str = ""
    raid: bool = False

    @property
    def settings(self) -> Kubelet:
        """The kubelet settings that Tenon reads, empty if the class has none."""
        return kubelet_of(self.kubelet) if self.kubelet else Kubelet()


def registrable(node_labels: Mapping[str, str]) -> dict[str, str]:
    """The labels that a kubelet may set on its own node, in order of key.

    It doesn't start with others in Kubernetes' own domains (kubelet ``--node-labels``); these are added when the node
    is registered.
    """
    return {key: node_labels[key] for key in sorted(node_labels) if _registrable(key)}


def _registrable(key: str) -> bool:
    domain = key.partition("/")[0] if "/" in key else ""
    if not any(domain == reserved or domain.endswith(f".{reserved}") for reserved in _RESERVED_DOMAINS):
        return True
    return key in _ALLOWED or any(domain == p or domain.endswith(f".{p}") for p in _ALLOWED_PREFIXES)


def taint_text(taint: Taint) -> str:
    """A taint as the kubelet's flag and kubectl write it: ``key=value:effect``, ``key:effect``."""
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"


def registration_flags(bootstrap: Bootstrap) -> list[str]:
    """The kubelet's flags for labels and taints."""
    flags = []
    if node_labels := registrable(bootstrap.labels):
        flags.append("--node-labels=" + ",".join(f"{key}={value}" for key, value in node_labels.items()))
    if bootstrap.taints:
        flags.append("--register-with-taints=" + ",".join(taint_text(t) for t in bootstrap.taints))
    return flags


def kubelet_flags(bootstrap: Bootstrap) -> list[str]:
    """The kubelet settings as flags, for bootstraps without a configuration file."""
    kubelet = bootstrap.settings
    flags = [
        f"--{name}={value}"
        for name, value in (
            ("max-pods", kubelet.max_pods),
            ("pods-per-core", kubelet.pods_per_core),
            ("eviction-max-pod-grace-period", kubelet.eviction_max_pod_grace_period),
            ("image-gc-high-threshold", kubelet.image_gc_high_threshold_percent),
            ("image-gc-low-threshold", kubelet.image_gc_low_threshold_percent),
        )
        if value is not None
    ]
    if kubelet.cpu_cfs_quota is not None:
        flags.append(f"--cpu-cfs-quota={str(kubelet.cpu_cfs_quota).lower()}")
    for name, values, sign in (
        ("system-reserved", kubelet.system_reserved, "="),
        ("kube-reserved", kubelet.kube_reserved, "="),
        ("eviction-hard", kubelet.eviction_hard, "<"),
        ("eviction-soft", kubelet.eviction_soft, "<"),
        ("eviction-soft-grace-period", kubelet.eviction_soft_grace_period, "="),
    ):
        if values:
            flags.append(f"--{name}=" + ",".join(f"{key}{sign}{values[key]}" for key in sorted(values)))
    return flags


# --- MIME multi-part archives ---


class Part(Struct):
    """A part: its Content-Type header and its text."""

    content_type: str
    text: str


def is_mime(user_data: str) -> bool:
    """Whether the text begins as a MIME message."""
    return user_data.lstrip().lower().startswith(_MIME_START)


def parse_mime(user_data: str) -> list[Part]:
    """The parts of the user's archive, in order.

    Raises:
        UserDataError: it is not a valid archive.
    """
    import email.policy  # noqa: PLC0415 (few node classes have user data of their own)

    try:
        message = email.message_from_string(user_data.lstrip(), policy=email.policy.default)
        return _parts(message)
    except _UNREADABLE as error:
        raise UserDataError(f"spec.userData is not a valid MIME multi-part archive: {type(error).__name__}") from error


def _parts(message: EmailMessage) -> list[Part]:
    """The parts of an archive.

    Raises:
        UserDataError: it is not a valid archive.
    """
    if not message.is_multipart():
        raise UserDataError(
            "spec.userData is not a valid MIME multi-part archive: it needs a Content-Type of multipart/mixed with a "
            "boundary, and parts between its boundaries"
        )
    if message.defects:
        raise UserDataError(
            f"spec.userData is not a valid MIME multi-part archive: {type(message.defects[0]).__name__}"
        )
    parts = []
    for part in message.walk():
        if part.is_multipart():
            continue
        try:
            text = part.get_content()
        except (LookupError, KeyError) as error:
            raise UserDataError(f"spec.userData has a part that can't be read: {error}") from error
        if not isinstance(text, str):
            text = text.decode("utf-8", errors="replace") if isinstance(text, bytes) else str(text)
        parts.append(Part(content_type=str(part["Content-Type"] or SHELL), text=text))
    return parts


def write_mime(parts: list[Part]) -> str:
    """The archive of the parts."""
    boundary = "//"
    while any(f"--{boundary}" in part.text for part in parts):
        boundary += "/"
    lines = ["MIME-Version: 1.0", f'Content-Type: multipart/mixed; boundary="{boundary}"', ""]
    for part in parts:
        lines += [f"--{boundary}", f"Content-Type: {part.content_type}", "", part.text.rstrip("\n"), ""]
    return "\n".join([*lines, f"--{boundary}--", ""])
