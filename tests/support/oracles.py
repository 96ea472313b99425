"""Networks with known answers, in the place of a video transformer."""

from types import SimpleNamespace

import torch
from diffusers import WanTransformer3DModel
from torch import Tensor, nn

from merope.adapters import attach
from merope.adapters.command import latent_rays
from merope.adapters.spec import VideoSpec
from merope.adapters.wan import CameraAdapter
from merope.encodings import MeRoPE
from merope.operators import CameraOperator
from tests.support.tiny_run import tiny_transformer


class Oracle(nn.Module):
    """Knows the clean latents and answers in the spec's prediction; keeps what it was asked."""

    def __init__(self, truth: Tensor, noise: Tensor, spec: VideoSpec) -> None:
        super().__init__()
        self.truth, self.noise, self.spec = truth, noise, spec
        self.config = SimpleNamespace(text_dim=8)
        self.asked: list[tuple[Tensor, Tensor]] = []
        # Sampling asks a network's parameters where it lives.
        self.place = nn.Parameter(torch.zeros(()))

    def forward(self, *, hidden_states, timestep, encoder_hidden_states, return_dict):
        self.asked.append((hidden_states.clone(), timestep.clone()))
        return (self.truth if self.spec.prediction == "clean" else self.noise - self.truth,)


def tiny_adapter() -> CameraAdapter:
    """Branches on a fresh tiny transformer, all zero."""
    return attach(
        WanTransformer3DModel(**tiny_transformer()),
        encoding=MeRoPE(head_dim=64),
        compression=2,
        schedule="every",
    )


def still_cameras(adapter: CameraAdapter, batch: int, spec: VideoSpec) -> CameraOperator:
    """The operator of clips that do not move."""
    poses = torch.eye(4, dtype=torch.float64).repeat(batch, spec.latent_frames, 1, 1)
    return adapter.encoding.operator(latent_rays(poses, spec))
