"""The kubelet configuration in a machine's user data, or the reason why the machine doesn't join the cluster.

A machine joins only by the user data of real bootstraps (nodeadm, bootstrap.sh, Bottlerocket), checked against the
cluster's attributes. User data that fails on a real machine fails here, with the reason.
"""

from __future__ import annotations

from email import message_from_string
from typing import TYPE_CHECKING

from local.kubelets import al2_bootstrap, bottlerocket, nodeadm
from local.kubelets.kubelet_configuration import JoinError, KubeletConfiguration
from shared.base.struct import Struct

if TYPE_CHECKING:
    from email.message import Message

    from shared.cluster.connect import ClusterInfo

__all__ = ["JoinError", "KubeletConfiguration", "Part", "kubelet_configuration", "parts"]

_NODEADM_TYPE = "application/node.eks.aws"


class Part(Struct):
    """One part of user data and its MIME type."""

    content_type: str
    text: str
    headers: dict[str, str] = {}


def parts(user_data: str) -> list[Part]:
    """The parts of MIME user data; other user data is one part."""
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
    """The kubelet configuration for a machine of this cluster.

    Raises:
        JoinError: the machine does not become a node; the text has the reason.
    """
    if not user_data.strip():
        raise JoinError("no user data, so no kubelet is started")
    all_parts = parts(user_data)
    configs = [p.text for p in all_parts if p.content_type == _NODEADM_TYPE or nodeadm.looks_like(p.text)]
    if configs:
        configuration = nodeadm.read(configs, cluster)
    elif scripts := [p.text for p in all_parts if al2_bootstrap.looks_like(p.text)]:
        configuration = al2_bootstrap.read(scripts[-1], cluster)
    elif len(all_parts) == 1 and bottlerocket.looks_like(all_parts[0].text):
        configuration = bottlerocket.read(all_parts[0].text, cluster)
    else:
        raise JoinError("the user data has no nodeadm NodeConfig, no call of bootstrap.sh and no Bottlerocket TOML")
    configuration.check()
    return configuration
