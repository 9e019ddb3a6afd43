"""The context of a deployment may have the keys of ``stack_options``; all others are refused.

The CDK ignores an unknown key, so that a misspelt one would deploy something else than was meant. The CDK keeps keys of
its own in the same context, and a user's ``~/.cdk.json`` is for all of a user's apps: these are left alone.
"""

from __future__ import annotations

import difflib
import json
from pathlib import Path
from typing import TYPE_CHECKING

from infra.options.rules import OptionError
from infra.options.stack_options import KEYS

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

_OF_THE_CDK = frozenset({"acknowledged-issue-numbers", "cli-telemetry"})
"""Keys of the CDK's command line without a namespace; all others have a colon or begin with ``@``."""


def given(pairs: Sequence[str]) -> dict[str, str]:
    """The context of ``-c KEY=VALUE`` options; the last of a key counts.

    Raises:
        OptionError: an option has no value, or its key is unknown.
    """
    context: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise OptionError(f"-c {pair}: must be KEY=VALUE")
        if key not in KEYS:
            raise OptionError(_unknown(key, value))
        context[key] = value
    return context


def check(context: Mapping[str, object]) -> None:
    """Refuse unknown keys in the context of an app.

    Raises:
        OptionError: a key is unknown, and neither the CDK's nor of a file that is not this app's.
    """
    unknown = [key for key in context if key not in KEYS and not _is_of_the_cdk(key)]
    if unknown:
        foreign = {*_keys(Path.home() / ".cdk.json", within="context"), *_keys(Path("cdk.context.json"))}
        for key in unknown:
            if key not in foreign:
                raise OptionError(_unknown(key, context[key]))


def _is_of_the_cdk(key: str) -> bool:
    return ":" in key or key.startswith("@") or key in _OF_THE_CDK


def _keys(path: Path, *, within: str = "") -> Collection[str]:
    """The keys of a JSON file, or of a map in it; none if it can't be read."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ()
    keys = document.get(within) if within and isinstance(document, dict) else document
    return tuple(keys) if isinstance(keys, dict) else ()


def _unknown(key: str, value: object) -> str:
    """The message about an unknown key."""
    by_lower = {known.lower(): known for known in KEYS}
    nearest = difflib.get_close_matches(key.lower().replace("-", "").replace("_", ""), by_lower, n=1)
    advice = f"did you mean {by_lower[nearest[0]]}?" if nearest else f"the keys are {', '.join(KEYS)}"
    return f"-c {key}={value if isinstance(value, str) else json.dumps(value, default=str)}: unknown; {advice}"
