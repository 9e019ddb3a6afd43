"""User data of Amazon Linux 2: a call of bootstrap.sh as the last part of a MIME archive, after the user's parts.

Source: /etc/eks/bootstrap.sh of the EKS optimized AMI; user parts come first so that they may prepare the machine.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from shared.ami_family import mime
from shared.ami_family.bootstrap import kubelet_flags, registration_flags

if TYPE_CHECKING:
    from shared.ami_family.bootstrap import Bootstrap


def render(boot: Bootstrap) -> str:
    """The user data.

    Raises:
        UserDataError: the user's says that it is MIME, and isn't.
    """
    return mime.write([*_users(boot.user_data), mime.Part(mime.SHELL, _script(boot))])


def _users(user_data: str) -> list[mime.Part]:
    text = user_data.strip()
    if not text:
        return []
    return mime.parse(text) if mime.is_mime(text) else [mime.Part(mime.SHELL, text)]


def _script(boot: Bootstrap) -> str:
    cluster = boot.cluster
    arguments = [
        "/etc/eks/bootstrap.sh",
        cluster.name,
        "--apiserver-endpoint",
        cluster.endpoint,
        "--b64-cluster-ca",
        cluster.certificate_authority,
    ]
    if boot.settings.cluster_dns:
        arguments += ["--dns-cluster-ip", boot.settings.cluster_dns[0]]
    if boot.settings.max_pods is not None or boot.settings.pods_per_core is not None:
        arguments += ["--use-max-pods", "false"]
    if boot.raid:
        arguments += ["--local-disks", "raid0"]
    arguments += ["--kubelet-extra-args", " ".join([*registration_flags(boot), *kubelet_flags(boot)])]
    return "\n".join(
        [
            "#!/bin/bash -xe",
            "exec > >(tee /var/log/user-data.log|logger -t user-data -s 2>/dev/console) 2>&1",
            shlex.join(arguments),
        ]
    )
