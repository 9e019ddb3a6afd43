"""The options that choose a cluster, files or a kubeconfig with AWS credentials, and other options of many commands."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.cluster import completion

if TYPE_CHECKING:
    from collections.abc import Sequence

File = Annotated[
    list[Path] | None,
    typer.Option(
        "--file",
        "-f",
        metavar="FILE",
        help="Read the cluster from a file: output of `kubectl get … -o json` (or yaml) or manifests; may be gzipped; "
        "- is standard input; repeatable.",
    ),
]
Context = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="The kubeconfig context; default: the current one.",
        autocompletion=completion.contexts,
    ),
]
Cluster = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="The EKS cluster's name; default: from the context, as `aws eks update-kubeconfig` writes it.",
    ),
]
Region = Annotated[
    str,
    typer.Option(metavar="REGION", help="The cluster's AWS Region; default: from the context or the nodes' labels."),
]
Aws = Annotated[
    bool,
    typer.Option(
        "--aws", help="With --file: read instance types and prices from your AWS account, not from the local world."
    ),
]
Namespace = Annotated[
    str,
    typer.Option(
        "--namespace",
        "-n",
        metavar="NAME",
        help="The namespace of namespaced objects.",
        autocompletion=completion.namespaces,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def reading(files: Sequence[Path] | None) -> str:
    """What a command shows while it reads these files, or the cluster."""
    return "Reading the files" if files else "Reading the cluster"
