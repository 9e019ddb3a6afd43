"""User data of Windows: a call of EKS' bootstrap script in PowerShell, after the user's own.

Source: Start-EKSBootstrap.ps1 of the EKS optimized Windows AMIs.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from shared.ami_family.bootstrap import UserDataError, kubelet_flags, registration_flags

if TYPE_CHECKING:
    from shared.ami_family.bootstrap import Bootstrap

_POWERSHELL = re.compile(r"^<powershell>(.*)</powershell>$", re.DOTALL | re.IGNORECASE)
_TAG = "<"


def render(boot: Bootstrap) -> str:
    """The user data.

    Raises:
        UserDataError: the user's opens a tag that is not a closed <powershell>.
    """
    cluster = boot.cluster
    arguments = [
        f"-EKSClusterName {_quoted(cluster.name)}",
        f"-APIServerEndpoint {_quoted(cluster.endpoint)}",
        f"-Base64ClusterCA {_quoted(cluster.certificate_authority)}",
        f"-KubeletExtraArgs {_quoted(' '.join([*registration_flags(boot), *kubelet_flags(boot)]))}",
    ]
    if boot.settings.cluster_dns:
        arguments.append(f"-DNSClusterIP {_quoted(boot.settings.cluster_dns[0])}")
    users = _users(boot.user_data)
    return "\n".join(
        [
            "<powershell>",
            *([users] if users else []),
            '[string]$EKSBootstrapScriptFile = "$env:ProgramFiles\\Amazon\\EKS\\Start-EKSBootstrap.ps1"',
            f"& $EKSBootstrapScriptFile {' '.join(arguments)}",
            "</powershell>",
            "",
        ]
    )


def _users(user_data: str) -> str:
    text = user_data.strip()
    if not text.startswith(_TAG):
        return text
    match = _POWERSHELL.match(text)
    if match is None:
        raise UserDataError("spec.userData must be PowerShell, plain or between <powershell> and </powershell>")
    return match.group(1).strip()


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
