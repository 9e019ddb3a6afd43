"""User data of Windows: PowerShell, the user's followed by a call of EKS' bootstrap script.

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


def render(bootstrap: Bootstrap) -> str:
    """The user data.

    Raises:
        UserDataError: the user's data has a tag that is not a closed <powershell>.
    """
    cluster = bootstrap.cluster
    arguments = [
        f"-EKSClusterName {_quoted(cluster.name)}",
        f"-APIServerEndpoint {_quoted(cluster.endpoint)}",
        f"-Base64ClusterCA {_quoted(cluster.certificate_authority)}",
        f"-KubeletExtraArgs {_quoted(' '.join([*registration_flags(bootstrap), *kubelet_flags(bootstrap)]))}",
    ]
    if bootstrap.settings.cluster_dns:
        arguments.append(f"-DNSClusterIP {_quoted(bootstrap.settings.cluster_dns[0])}")
    user_script = _user_script(bootstrap.user_data)
    return "\n".join(
        [
            "<powershell>",
            *([user_script] if user_script else []),
            '[string]$EKSBootstrapScriptFile = "$env:ProgramFiles\\Amazon\\EKS\\Start-EKSBootstrap.ps1"',
            f"& $EKSBootstrapScriptFile {' '.join(arguments)}",
            "</powershell>",
            "",
        ]
    )


def _user_script(user_data: str) -> str:
    text = user_data.strip()
    if not text.startswith(_TAG):
        return text
    match = _POWERSHELL.match(text)
    if match is None:
        raise UserDataError("spec.userData must be PowerShell, plain or between <powershell> and </powershell>")
    return match.group(1).strip()


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
