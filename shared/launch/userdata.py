"""The user data of a launch template: the family's bootstrap merged with what the class says.

One module a family renders it; here is only which.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.instances import family as families
from shared.launch import al2, al2023, bottlerocket, windows

if TYPE_CHECKING:
    from shared.instances.family import Family
    from shared.launch.bootstrap import Bootstrap


def render(family: Family, boot: Bootstrap) -> str:
    """The user data as text; a Custom family's is the user's, verbatim.

    Raises:
        UserDataError: the class's ``spec.userData`` can't be merged; the text says why.
    """
    if family.os == "windows":
        return windows.render(boot)
    match family.name:
        case families.AL2:
            return al2.render(boot)
        case families.AL2023:
            return al2023.render(boot)
        case families.BOTTLEROCKET:
            return bottlerocket.render(boot)
        case _:
            return boot.user_data
