"""The stored form of what Tenon keeps in S3 as one object: a value as MessagePack under zlib, with a version.

An object of another version counts as malformed. Whoever reads it says what that means: all that is stored so can be
read again from AWS, or begins again. :mod:`shared.base.stored_objects` reads it.
"""

from __future__ import annotations

import zlib
from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")


class MalformedBlobError(ValueError):
    """The bytes are not such a value, or one of another version."""


class BlobForm(Generic[T]):
    """The stored form of a type's values.

    >>> form = BlobForm(dict[str, int], version=1, noun="a count")
    >>> form.decode(form.encode({"nodes": 3}))
    {'nodes': 3}
    """

    def __init__(self, type_: type[T], *, version: int, noun: str) -> None:
        self._version, self._noun = version, noun
        self._decoder = msgspec.msgpack.Decoder(type_)

    def encode(self, value: T) -> bytes:
        """The stored form; equal values give equal bytes."""
        return zlib.compress(msgspec.msgpack.encode((self._version, value)), level=6)

    def decode(self, stored: bytes) -> T:
        """The value from its stored form.

        Raises:
            MalformedBlobError: the bytes are no such value, or one of another version.
        """
        try:
            version, value = msgspec.msgpack.decode(zlib.decompress(stored), type=tuple[int, msgspec.Raw])
            if version != self._version:
                raise MalformedBlobError(f"{self._noun} of version {version}; version {self._version} is needed")
            return self._decoder.decode(value)
        except (zlib.error, msgspec.MsgspecError) as error:
            raise MalformedBlobError(f"not {self._noun}: {error}") from error
