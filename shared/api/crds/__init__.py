"""The CustomResourceDefinitions of the kinds, made from the structs and kept as files next to this one.

``python -m shared.api.crds`` writes the files again; a test holds that they are what the structs say. A cluster that
ran Karpenter has definitions of its own, and they serve as well: these accept whatever those accept.
"""

from __future__ import annotations

import importlib.resources
from typing import Any

from shared.api.yaml_documents import reader


def load() -> list[dict[str, Any]]:
    """The kept definitions, in order of file name, as the API server takes them."""
    folder = importlib.resources.files(__name__)
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".yaml")), key=lambda file: file.name)
    return [reader.document(file.read_text(encoding="utf-8")) for file in files]
