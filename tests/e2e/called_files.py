"""Which files a reader has to know: those of which a function is called between two moments of a world."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import FrameType

ROOT = Path(__file__).parents[2]


class Tracer:
    """The files below some folders of which a function was called while a function ran, in whatever thread."""

    def __init__(self, folders: Iterable[str]) -> None:
        self.files: set[str] = set()
        self._folders = tuple(f"{ROOT / folder}/" for folder in folders)

    def over(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def traced(*arguments: object) -> object:
            before = sys.getprofile()
            sys.setprofile(self._called)
            threading.setprofile(self._called)
            try:
                return function(*arguments)
            finally:
                sys.setprofile(before)
                threading.setprofile(before)

        return traced

    def _called(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_name != "<module>":
            file = frame.f_code.co_filename
            if file.startswith(self._folders):
                self.files.add(file.removeprefix(f"{ROOT}/"))
