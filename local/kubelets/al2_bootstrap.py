"""AL2: the arguments of the bootstrap.sh call in a shell script."""

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
    """The settings of the call; endpoint and authority may be left out, bootstrap.sh then asks EKS for them.

    Raises:
        JoinError: the call can't be read, or is for another cluster.
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
        raise JoinError(f"the kubelet's extra arguments can't be read: {error}") from error
    return with_flags(KubeletConfiguration(raid0=options.get("local-disks") == "raid0"), flag_values(extra))


def _options(words: list[str]) -> dict[str, str]:
    """Every option of bootstrap.sh takes the next word, whatever it looks like."""
    return {words[i].removeprefix("--"): words[i + 1] for i in range(0, len(words) - 1, 2)}


def _call(script: str) -> list[str]:
    """The words after bootstrap.sh, on one logical line."""
    for line in script.replace("\\\n", " ").splitlines():
        if _SCRIPT in line and not line.lstrip().startswith("#"):
            try:
                words = shlex.split(line)
            except ValueError as error:
                raise JoinError(f"the shell can't read the call of bootstrap.sh: {error}") from error
            return words[words.index(_SCRIPT) + 1 :] if _SCRIPT in words else []
    raise JoinError("bootstrap.sh is named in the script and never called")
