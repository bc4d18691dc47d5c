"""The default device and dtype of torch, which conftests change for the tests beside ours."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True)
class Defaults:
    """Where tensors are made that say nothing of it, and as what. ``PLAIN`` is torch's own."""

    device: torch.device
    dtype: torch.dtype

    @classmethod
    def now(cls) -> Defaults:
        """Those in force."""
        return cls(torch.get_default_device(), torch.get_default_dtype())

    @contextmanager
    def held(self) -> Iterator[None]:
        """Have them in force."""
        before = Defaults.now()
        # A mode costs each call of torch a microsecond, so it is entered where it changes anything.
        mode = self.device if self.device != before.device else nullcontext()
        torch.set_default_dtype(self.dtype)
        try:
            with mode:
                yield
        finally:
            torch.set_default_dtype(before.dtype)


PLAIN = Defaults(torch.device("cpu"), torch.float32)
