"""User data of Amazon Linux 2: a MIME archive of the user's parts and, last, a call of bootstrap.sh.

Source: /etc/eks/bootstrap.sh of the EKS optimized AMI. The user's parts are first, so that they can prepare the node.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from shared.ami_family.bootstrap import SHELL, Part, is_mime, kubelet_flags, parse_mime, registration_flags, write_mime

if TYPE_CHECKING:
    from shared.ami_family.bootstrap import Bootstrap


def render(bootstrap: Bootstrap) -> str:
    """The user data.

    Raises:
        UserDataError: the user's data declares MIME and is not valid MIME.
    """
    return write_mime([*_user_parts(bootstrap.user_data), Part(SHELL, _script(bootstrap))])


def _user_parts(raw: str) -> list[Part]:
    text = raw.strip()
    if not text:
        return []
    return parse_mime(text) if is_mime(text) else [Part(SHELL, text)]


def _script(bootstrap: Bootstrap) -> str:
    cluster = bootstrap.cluster
    arguments = [
        "/etc/eks/bootstrap.sh",
        cluster.name,
        "--apiserver-endpoint",
        cluster.endpoint,
        "--b64-cluster-ca",
        cluster.certificate_authority,
    ]
    if bootstrap.settings.cluster_dns:
        arguments += ["--dns-cluster-ip", bootstrap.settings.cluster_dns[0]]
    if bootstrap.settings.max_pods is not None or bootstrap.settings.pods_per_core is not None:
        arguments += ["--use-max-pods", "false"]
    if bootstrap.raid:
        arguments += ["--local-disks", "raid0"]
    arguments += ["--kubelet-extra-args", " ".join([*registration_flags(bootstrap), *kubelet_flags(bootstrap)])]
    return "\n".join(
        [
            "#!/bin/bash -xe",
            "exec > >(tee /var/log/user-data.log|logger -t user-data -s 2>/dev/console) 2>&1",
            shlex.join(arguments),
        ]
    )
