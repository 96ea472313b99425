"""Small networks of random weights: of frames, and of videos with the call of the usual I3D TorchScript file."""

import torch
from torch import Tensor, nn

from merope.evaluation.fidelity.networks import network_of_module


class TinyFrames(nn.Module):
    """Frames of any size, uint8 or float in 0..255, to ``dimension`` features."""

    def __init__(self, dimension: int = 6, seed: int = 0):
        super().__init__()
        torch.manual_seed(seed)
        self.conv = nn.Conv2d(3, dimension, 5, stride=3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.conv(x.float() / 127.5 - 1.0)).mean(dim=(2, 3))


class TinyI3D(nn.Module):
    """Videos [batch, 3, time, height, width] to 5 features, with the switches of the usual TorchScript file."""

    def __init__(self, seed: int = 0):
        super().__init__()
        torch.manual_seed(seed)
        self.conv = nn.Conv3d(3, 5, (3, 5, 5), stride=(2, 3, 3))

    def forward(
        self, x: Tensor, rescale: bool = False, resize: bool = False, return_features: bool = False
    ) -> Tensor:
        if rescale:
            x = x / 255.0 * 2.0 - 1.0
        if resize:
            x = nn.functional.interpolate(x, size=[x.shape[2], 24, 24], mode="trilinear", align_corners=False)
        features = torch.tanh(self.conv(x)).mean(dim=(2, 3, 4))
        return features if return_features else torch.softmax(features, dim=1)


def frames_network(dimension: int = 6, seed: int = 0, **options):
    return network_of_module(
        TinyFrames(dimension, seed), takes="frames", name="tiny", values="uint8", **options
    )


class Videos(nn.Module):
    """TinyI3D called as the file is."""

    def __init__(self, seed: int = 0):
        super().__init__()
        self.net = TinyI3D(seed)

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x, rescale=True, resize=True, return_features=True)


def videos_network(seed: int = 0, **options):
    return network_of_module(
        Videos(seed),
        takes="videos",
        name="tiny-videos",
        covariance="N",
        min_frames=10,
        batch_size=1,
        **options,
    )


def save_i3d(path, seed: int = 0):
    torch.jit.script(TinyI3D(seed).eval()).save(str(path))
    return path


def save_frames(path, dimension: int = 6, seed: int = 0):
    torch.jit.script(TinyFrames(dimension, seed).eval()).save(str(path))
    return path
