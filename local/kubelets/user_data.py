"""What a machine's user data makes of it: does it join this cluster, and with which kubelet settings.

A node joins only by what real bootstraps read (nodeadm, bootstrap.sh, Bottlerocket's settings), checked against what
EKS says of the cluster. So user data that would leave a real machine outside leaves it outside here, with the reason.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from email import message_from_string
from typing import TYPE_CHECKING

from local.kubelets import al2_bootstrap, bottlerocket, nodeadm
from local.kubelets.kubelet_configuration import JoinError, KubeletConfiguration

if TYPE_CHECKING:
    from email.message import Message

    from shared.cluster.connect import ClusterInfo

__all__ = ["JoinError", "KubeletConfiguration", "Part", "kubelet_configuration", "parts"]

_NODEADM_TYPE = "application/node.eks.aws"


@dataclass(frozen=True)
class Part:
    """One part of user data and its MIME type."""

    content_type: str
    text: str
    headers: dict[str, str] = field(default_factory=dict)


def parts(user_data: str) -> list[Part]:
    """The parts of MIME user data, or the whole as one part."""
    head = user_data.lstrip()
    if not head.lower().startswith(("mime-version:", "content-type:")):
        return [Part("", user_data)]
    message: Message = message_from_string(head)
    if not message.is_multipart():
        return [Part(message.get_content_type(), _text(message))]
    return [Part(p.get_content_type(), _text(p)) for p in message.walk() if not p.is_multipart()]


def _text(message: Message) -> str:
    payload = message.get_payload(decode=True)
    return payload.decode("utf-8", "replace") if isinstance(payload, bytes) else str(payload)


def kubelet_configuration(user_data: str, cluster: ClusterInfo) -> KubeletConfiguration:
    """The kubelet settings that the user data gives a machine of this cluster.

    Raises:
        JoinError: the machine does not become a node; says why, as a person would look for it.
    """
    if not user_data.strip():
        raise JoinError("there is no user data, so nothing starts a kubelet")
    found = parts(user_data)
    configs = [p.text for p in found if p.content_type == _NODEADM_TYPE or nodeadm.looks_like(p.text)]
    if configs:
        settings = nodeadm.read(configs, cluster)
    elif scripts := [p.text for p in found if al2_bootstrap.looks_like(p.text)]:
        settings = al2_bootstrap.read(scripts[-1], cluster)
    elif len(found) == 1 and bottlerocket.looks_like(found[0].text):
        settings = bottlerocket.read(found[0].text, cluster)
    else:
        raise JoinError("the user data has no nodeadm NodeConfig, calls no bootstrap.sh and is no Bottlerocket TOML")
    settings.check()
    return settings
