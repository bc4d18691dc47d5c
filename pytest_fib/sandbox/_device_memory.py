"""A device's memory, which several processes share: none of them keeps much that it doesn't use."""

from __future__ import annotations

import torch

#: The most that a process keeps of a device's memory without using it, once for torch's cache and
#: once for each arena, in bytes. Without a limit, eight workers filled a device of 139 GiB.
MOST_UNUSED = 1 << 30


def give_back_unused() -> None:
    """Free what torch keeps for later tensors, where that is much."""
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return
    if torch.cuda.memory_reserved() - torch.cuda.memory_allocated() > MOST_UNUSED:
        torch.cuda.empty_cache()
