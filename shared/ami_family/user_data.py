"""The user data of a launch template: the family's bootstrap merged with what the class says.

One module a family renders it; here is only which. They are imported when a launch needs one, because what they read
(YAML, TOML, MIME) would be a twentieth of every cold start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.ami_family import families

if TYPE_CHECKING:
    from shared.ami_family.bootstrap import Bootstrap
    from shared.ami_family.families import Family


def render(family: Family, boot: Bootstrap) -> str:
    """The user data as text; a Custom family's is the user's, verbatim.

    Raises:
        UserDataError: the class's ``spec.userData`` can't be merged; the text says why.
    """
    if family.os == "windows":
        from shared.ami_family import windows  # noqa: PLC0415  (see the module)

        return windows.render(boot)
    match family.name:
        case families.AL2:
            from shared.ami_family import al2  # noqa: PLC0415  (the same)

            return al2.render(boot)
        case families.AL2023:
            from shared.ami_family import al2023  # noqa: PLC0415  (the same)

            return al2023.render(boot)
        case families.BOTTLEROCKET:
            from shared.ami_family import bottlerocket  # noqa: PLC0415  (the same)

            return bottlerocket.render(boot)
        case _:
            return boot.user_data
