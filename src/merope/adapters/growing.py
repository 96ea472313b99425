"""`GrowingTokens`: memory for tokens that come a few at a time."""

import torch
from torch import Tensor


class GrowingTokens:
    """A tensor that grows along its axis of tokens; ``length`` of them are in use.

    It holds values alone, no graph. When it is full its room doubles, so every token is copied twice on average
    however many are appended one by one.
    """

    def __init__(self, like: Tensor, *, axis: int, room: int) -> None:
        self.axis = axis
        self.length = 0
        self.storage = self._empty(like, room)

    def tokens(self) -> Tensor:
        """What is in use, in place."""
        return self.storage.narrow(self.axis, 0, self.length)

    def append(self, tensor: Tensor) -> None:
        """Copy the values to the end."""
        needed = self.length + tensor.shape[self.axis]
        if needed > self.storage.shape[self.axis]:
            grown = self._empty(self.storage, max(needed, 2 * self.storage.shape[self.axis]))
            grown.narrow(self.axis, 0, self.length).copy_(self.tokens())
            self.storage = grown
        end = self.storage.narrow(self.axis, self.length, tensor.shape[self.axis])
        end.copy_(tensor.detach())
        self.length = needed

    def drop_first(self, count: int) -> None:
        """Move what comes after to the front."""
        rest = self.tokens().narrow(self.axis, count, self.length - count)
        self.length -= count
        self.tokens().copy_(rest.clone())

    def _empty(self, like: Tensor, room: int) -> Tensor:
        shape = [*like.shape]
        shape[self.axis] = room
        # An inference tensor could not be written to outside of inference mode.
        with torch.inference_mode(False):
            return torch.empty(shape, dtype=like.dtype, device=like.device)
