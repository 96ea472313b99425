"""What a feature network is, and any `nn.Module` as one.

Every network takes uint8 and says what it does with it: a value range and a resize that nobody states are how the same
videos get two distances.
"""

import hashlib
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float, Shaped, UInt8
from torch import Tensor, nn

from merope.errors import MeropeError

Takes = Literal["frames", "videos"]
Values = Literal["0..255", "0..1", "-1..1", "uint8"]
Divisor = Literal["N - 1", "N"]
AS_GIVEN = "none: it takes the size that it is given"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FeatureNetwork:
    """A network that turns frames [frame, 3, height, width] or videos [video, 3, time, height, width] into features.

    ``covariance`` is the divisor that the library of this network uses for its covariances.
    """

    name: str
    takes: Takes
    compute: Callable[[UInt8[Tensor, "..."]], Float[Tensor, "sample feature"]]
    sha256: str
    """Of the weight file, or of the weights of a module."""
    backend: str
    """Library and version."""
    own_resize: str
    """What it does to the size of what it is given, in words."""
    value_range: str
    """What it does to the values, in words."""
    covariance: Divisor
    weights: str = "given in Python"
    dimension: int | None = None
    """Features of one sample, where that is known before one was computed."""
    input_size: tuple[int, int] | None = None
    """Height and width that it was trained on."""
    min_frames: int = 1
    batch_size: int = 16
    device: str = "cpu"

    def describe(self) -> dict[str, Any]:
        """What changes its features, as JSON types; the device is left out, though kernels differ in their last digits."""
        return {
            "network": self.name,
            "network_sha256": self.sha256,
            "weights": self.weights,
            "backend": self.backend,
            "own_resize": self.own_resize,
            "value_range": self.value_range,
        }

    @torch.inference_mode()
    def features(self, pixels: Shaped[Tensor, "sample ..."]) -> Float[Tensor, "sample feature"]:
        """Features in float32, on the CPU; samples in batches of ``batch_size``, whatever autocast and TF32 are set to.

        Raises:
            TypeError: if the values are not uint8.
            MeropeError: if the network fails, or does not give one row of finite numbers for each sample.
        """
        if pixels.dtype != torch.uint8:
            raise TypeError(
                f"fidelity takes uint8 values in 0..255, and nothing is rescaled by guess; got {pixels.dtype}."
            )
        found = []
        for batch in pixels.split(self.batch_size):
            with torch.autocast(torch.device(self.device).type, enabled=False), _without_tf32():
                found.append(self._rows(batch))
        return torch.cat(found)

    def _rows(self, batch: UInt8[Tensor, "sample ..."]) -> Float[Tensor, "sample feature"]:
        try:
            given = self.compute(batch.to(self.device))
        # Whatever a file does not take: sizes, lengths, arguments, more memory than there is.
        except RuntimeError as error:
            raise MeropeError(
                f"{self.name} failed on {self.takes} of shape {tuple(batch.shape)}: {_said(error)}. Are these "
                "the weights of such a network?"
            ) from error
        if not isinstance(given, Tensor):
            raise MeropeError(
                f"{self.name} gave a {type(given).__name__} and not one tensor; wrap it so that it gives its features alone."
            )
        if given.ndim < 2 or given.shape[2:].numel() != 1:
            raise MeropeError(
                f"{self.name} gave {tuple(given.shape)} for {len(batch)} samples; a feature network gives one row for each. "
                "Take the mean of maps over their places first."
            )
        rows = given.flatten(1).float().cpu()
        if len(rows) != len(batch) or not bool(torch.isfinite(rows).all()):
            raise MeropeError(
                f"{self.name} gave {tuple(rows.shape)} for {len(batch)} samples, or numbers that are not finite; a "
                "feature network gives one row of finite numbers for each. Check the weights."
            )
        return rows


def network_of_module(
    module: nn.Module,
    *,
    takes: Takes,
    name: str,
    values: Values = "0..255",
    device: str = "cpu",
    batch_size: int = 16,
    min_frames: int = 1,
    input_size: tuple[int, int] | None = None,
    covariance: Divisor = "N - 1",
) -> FeatureNetwork:
    """Any module as feature network, in evaluation mode; ``values`` is what it takes: uint8, or float32 in a range.

    Its identity is a hash of its class, its weights and what it prints of itself. A setting that is in none of these
    changes features and not the identity: give such a module another ``name``.
    """
    module = module.eval().to(device)
    return FeatureNetwork(
        name=name,
        takes=takes,
        compute=lambda batch: module(in_range(batch, values)),
        sha256=_module_sha256(module),
        backend=f"torch {torch.__version__}, {type(module).__name__}",
        own_resize=AS_GIVEN,
        value_range=f"uint8 in, {values} to the network",
        covariance=covariance,
        input_size=input_size,
        min_frames=min_frames,
        batch_size=batch_size,
        device=device,
    )


def in_range(batch: UInt8[Tensor, "..."], values: Values) -> Tensor:
    """uint8 as it is, or as float32 in a range."""
    if values == "uint8":
        return batch
    pixels = batch.float()
    return {"0..255": pixels, "0..1": pixels / 255, "-1..1": pixels / 127.5 - 1}[values]


def _module_sha256(module: nn.Module) -> str:
    kind = type(module)
    # An address that is printed differs from run to run.
    words = re.sub(r" at 0x[0-9a-f]+", "", repr(module))
    digest = hashlib.sha256(f"{kind.__module__}.{kind.__qualname__} {words}".encode())
    for key, tensor in module.state_dict().items():
        digest.update(f"{key} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


@contextmanager
def _without_tf32() -> Iterator[None]:
    """float32 as it is said: by default convolutions on a GPU round to TF32, which keeps three digits."""
    # At run time torch puts an object there that has more attributes than the module.
    cudnn: Any = torch.backends.cudnn
    kinds = [cudnn.conv, cudnn.rnn]
    before = [kind.fp32_precision for kind in kinds]
    try:
        allowed = bool(cudnn.allow_tf32)
    # Torch refuses to read the older switch where a program set the newer ones apart.
    except RuntimeError:
        allowed = False
    try:
        cudnn.allow_tf32 = False
        for kind in kinds:
            kind.fp32_precision = "ieee"
        yield
    finally:
        cudnn.allow_tf32 = allowed
        for kind, precision in zip(kinds, before, strict=True):
            kind.fp32_precision = precision


def _said(error: RuntimeError) -> str:
    """The line that says what happened: the last of a TorchScript file's own traceback, else the first."""
    lines = [line for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return f"{lines[-1 if 'TorchScript' in lines[0] else 0].strip():.200}"
