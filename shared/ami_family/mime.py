"""MIME multi-part user data: the user's parts are read, and written together with Tenon's.

cloud-init and nodeadm process the parts of an archive in order, so this merges the user data of AL2 and AL2023.
"""

from __future__ import annotations

import email
import email.policy
from dataclasses import dataclass

from shared.ami_family.bootstrap import UserDataError

SHELL = 'text/x-shellscript; charset="us-ascii"'
_START = ("mime-version:", "content-type: multipart")


@dataclass(frozen=True)
class Part:
    """A part: its Content-Type header and its text."""

    content_type: str
    text: str


def is_mime(user_data: str) -> bool:
    """Whether the text begins as a MIME message."""
    return user_data.lstrip().lower().startswith(_START)


def parse(user_data: str) -> list[Part]:
    """The parts of the user's archive, in order.

    Raises:
        UserDataError: it is not a valid archive.
    """
    message = email.message_from_string(user_data.lstrip(), policy=email.policy.default)
    if not message.is_multipart():
        raise UserDataError(
            "spec.userData is not a valid MIME multi-part archive: it needs a Content-Type of multipart/mixed with a "
            "boundary, and parts between its boundaries"
        )
    if message.defects:
        raise UserDataError(
            f"spec.userData is not a valid MIME multi-part archive: {type(message.defects[0]).__name__}"
        )
    parts = []
    for part in message.walk():
        if part.is_multipart():
            continue
        try:
            text = part.get_content()
        except (LookupError, KeyError) as error:
            raise UserDataError(f"spec.userData has a part that can't be read: {error}") from error
        if not isinstance(text, str):
            text = text.decode("utf-8", errors="replace") if isinstance(text, bytes) else str(text)
        parts.append(Part(content_type=str(part["Content-Type"] or SHELL), text=text))
    return parts


def write(parts: list[Part]) -> str:
    """The archive of the parts."""
    boundary = "//"
    while any(f"--{boundary}" in part.text for part in parts):
        boundary += "/"
    lines = ["MIME-Version: 1.0", f'Content-Type: multipart/mixed; boundary="{boundary}"', ""]
    for part in parts:
        lines += [f"--{boundary}", f"Content-Type: {part.content_type}", "", part.text.rstrip("\n"), ""]
    return "\n".join([*lines, f"--{boundary}--", ""])
