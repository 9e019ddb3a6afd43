"""The type of decoded JSON, for signatures of code that reads it as it is, without a kind's fields.

It is ``Any`` under its own name: a signature says JSON, and values whose type is unknown stand out.
"""

from __future__ import annotations

from typing import Any

Json = Any
"""null, a boolean, a number, a text, a list, or a map of texts to these."""
