"""The user data of a launch template: the family's bootstrap, merged with the class's user data.

Each family has its own module. It is imported when a launch needs it, because its parsers (YAML, TOML, MIME) would be a
twentieth of every cold start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.ami_family import families

if TYPE_CHECKING:
    from shared.ami_family.bootstrap import Bootstrap
    from shared.ami_family.families import Family


def render(family: Family, bootstrap: Bootstrap) -> str:
    """The user data as text; for the family Custom the user's, unchanged.

    Raises:
        UserDataError: the class's ``spec.userData`` can't be merged.
    """
    if family.os == "windows":
        from shared.ami_family import windows  # noqa: PLC0415  (see the module)

        return windows.render(bootstrap)
    match family.name:
        case families.AL2:
            from shared.ami_family import al2  # noqa: PLC0415  (the same)

            return al2.render(bootstrap)
        case families.AL2023:
            from shared.ami_family import al2023  # noqa: PLC0415  (the same)

            return al2023.render(bootstrap)
        case families.BOTTLEROCKET:
            from shared.ami_family import bottlerocket  # noqa: PLC0415  (the same)

            return bottlerocket.render(bootstrap)
        case _:
            return bootstrap.user_data
