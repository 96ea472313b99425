"""What a feature network is, and any `nn.Module` as one.

Every network takes uint8 and says what it does with it: a value range and a resize that nobody states are how the same
videos get two distances.
"""

import hashlib
from collections.abc import Callable
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
        """Features in float32, on the CPU; samples in batches of ``batch_size``, whatever autocast says.

        Raises:
            TypeError: if the values are not uint8.
            MeropeError: if a batch does not give one row of finite numbers for each sample.
        """
        if pixels.dtype != torch.uint8:
            raise TypeError(
                f"fidelity takes uint8 values in 0..255, and nothing is rescaled by guess; got {pixels.dtype}."
            )
        found = []
        for batch in pixels.split(self.batch_size):
            with torch.autocast(torch.device(self.device).type, enabled=False):
                rows = self.compute(batch.to(self.device)).flatten(1).float().cpu()
            if len(rows) != len(batch) or not bool(torch.isfinite(rows).all()):
                raise MeropeError(
                    f"{self.name} gave {tuple(rows.shape)} for {len(batch)} samples, or numbers that are not finite; a "
                    "feature network gives one row of finite numbers for each. Check the weights."
                )
            found.append(rows)
        return torch.cat(found)


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

    Its identity is a hash of its class's name and its weights.
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
    digest = hashlib.sha256(type(module).__qualname__.encode())
    for key, tensor in module.state_dict().items():
        digest.update(f"{key} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
