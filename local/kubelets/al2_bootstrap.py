"""AL2 user data: the arguments of the bootstrap.sh call in a shell script."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from local.kubelets.kubelet_configuration import JoinError, KubeletConfiguration, check_cluster, flag_values, with_flags

if TYPE_CHECKING:
    from shared.cluster.connect import ClusterInfo

_SCRIPT = "/etc/eks/bootstrap.sh"


def looks_like(text: str) -> bool:
    """Whether the text is a script that calls bootstrap.sh."""
    return _SCRIPT in text


def read(script: str, cluster: ClusterInfo) -> KubeletConfiguration:
    """The configuration from the call. Without endpoint and authority, bootstrap.sh gets them from EKS.

    Raises:
        JoinError: the call is malformed, or for another cluster.
    """
    words = _call(script)
    name = words[0] if words and not words[0].startswith("--") else ""
    options = _options(words[1:] if name else words)
    check_cluster(
        cluster, name=name, endpoint=options.get("apiserver-endpoint"), authority=options.get("b64-cluster-ca")
    )
    try:
        extra = shlex.split(options.get("kubelet-extra-args", ""))
    except ValueError as error:
        raise JoinError(f"--kubelet-extra-args is malformed: {error}") from error
    return with_flags(KubeletConfiguration(raid0=options.get("local-disks") == "raid0"), flag_values(extra))


def _options(words: list[str]) -> dict[str, str]:
    """The options by name; the value of each is the next word, whatever it is."""
    return {words[i].removeprefix("--"): words[i + 1] for i in range(0, len(words) - 1, 2)}


def _call(script: str) -> list[str]:
    """The arguments of bootstrap.sh."""
    for line in script.replace("\\\n", " ").splitlines():
        if _SCRIPT in line and not line.lstrip().startswith("#"):
            try:
                words = shlex.split(line)
            except ValueError as error:
                raise JoinError(f"the call of bootstrap.sh is malformed: {error}") from error
            return words[words.index(_SCRIPT) + 1 :] if _SCRIPT in words else []
    raise JoinError("the script names bootstrap.sh but doesn't call it")
