"""The maintained Inception and I3D by name, with their weight files; their usual TorchScript files, and any other one."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from merope.errors import MeropeError, MissingDependency
from merope.evaluation.fidelity import weights as files
from merope.evaluation.fidelity.networks import AS_GIVEN, Divisor, FeatureNetwork, Takes, in_range
from merope.evaluation.fidelity.weights import WeightFile, file_sha256, find_weights

EXTRA = "fidelity"
# I3D halves time three times and pools over two of what is left; nine frames are too few in some of its files.
_I3D_FRAMES = 10


def _inception(path: Path, device: str, *, antialias: bool, **_: Any) -> dict[str, Any]:
    _require("torch_fidelity", "the Inception network of FID")
    _require("torchmetrics", "the Inception network of FID")
    require_plain_weights(path, "inception-torchscript")
    from torchmetrics.image.fid import NoTrainInceptionV3

    module = NoTrainInceptionV3(
        name="inception-v3-compat",
        features_list=["2048"],
        feature_extractor_weights_path=str(path),
        antialias=antialias,
    ).to(device)
    return {
        "compute": module,
        "backend": f"torch {torch.__version__}, torchmetrics {version('torchmetrics')}, "
        f"torch-fidelity {version('torch-fidelity')}",
        "own_resize": "to 299 x 299, bilinear, antialiased (torchmetrics)"
        if antialias
        else "to 299 x 299, bilinear as in TensorFlow 1, not antialiased (torch-fidelity)",
        "value_range": "uint8 in, (x - 128) / 128 to the network",
    }


def _inception_torchscript(path: Path, device: str, **_: Any) -> dict[str, Any]:
    module = _torchscript(path, device)
    return {
        "compute": lambda batch: module(batch, return_features=True),
        "backend": f"torch {torch.__version__}, TorchScript",
        "own_resize": "the file's own",
        "value_range": "uint8 in, the file's own scaling",
    }


def _i3d_torchscript(path: Path, device: str, *, presized: bool, **_: Any) -> dict[str, Any]:
    module = _torchscript(path, device)
    own = not presized
    return {
        "compute": lambda batch: module(
            in_range(batch, "0..255" if own else "-1..1"), rescale=own, resize=own, return_features=True
        ),
        "backend": f"torch {torch.__version__}, TorchScript (rescale={own}, resize={own}, return_features=True)",
        "own_resize": "the file's own, to 224 x 224 (resize=True)" if own else "none (resize=False)",
        "value_range": "uint8 in, the file's own scaling (rescale=True)"
        if own
        else "uint8 in, x / 127.5 - 1 to the network",
    }


def _i3d_cdfvd(path: Path, device: str, **_: Any) -> dict[str, Any]:
    _require("cdfvd", "the I3D network of cd-fvd")
    require_plain_weights(path, "i3d-torchscript")
    from cdfvd.third_party.i3d.utils import load_i3d_model, preprocess_i3d

    module = load_i3d_model(torch.device(device), str(path))

    def compute(batch: Tensor) -> Tensor:
        ready = preprocess_i3d(batch.permute(0, 2, 3, 4, 1).cpu().numpy())
        return module(ready.to(device))

    return {
        "compute": compute,
        "backend": f"torch {torch.__version__}, cd-fvd {version('cd-fvd')}",
        "own_resize": "to 224 x 224, bilinear, not antialiased (cd-fvd)",
        "value_range": "uint8 in, x / 127.5 - 1 to the network",
    }


def _any_torchscript(path: Path, device: str, **_: Any) -> dict[str, Any]:
    module = _torchscript(path, device)
    return {
        "compute": lambda batch: module(batch.float()),
        "backend": f"torch {torch.__version__}, TorchScript",
        "own_resize": AS_GIVEN,
        "value_range": "uint8 in, float32 in 0..255 to the network",
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkEntry:
    """A network that the command line can name."""

    summary: str
    takes: Takes
    load: Callable[..., dict[str, Any]]
    usual: WeightFile
    dimension: int | None
    input_size: tuple[int, int] | None
    covariance: Divisor
    options: dict[str, Any]


def _images(
    summary: str, load: Callable[..., dict[str, Any]], usual: WeightFile, **options: Any
) -> NetworkEntry:
    return NetworkEntry(
        summary=summary,
        takes="frames",
        load=load,
        usual=usual,
        dimension=2048,
        input_size=(299, 299),
        covariance="N - 1",
        options=options,
    )


def _videos(summary: str, load: Callable[..., dict[str, Any]], usual: WeightFile) -> NetworkEntry:
    return NetworkEntry(
        summary=summary,
        takes="videos",
        load=load,
        usual=usual,
        dimension=None,
        input_size=(224, 224),
        covariance="N",
        options={},
    )


NETWORKS: dict[str, NetworkEntry] = {
    "inception": _images(
        "Inception as torchmetrics runs it, antialiased", _inception, files.INCEPTION, antialias=True
    ),
    "inception-tf1": _images(
        "Inception as torch-fidelity and TensorFlow run it", _inception, files.INCEPTION, antialias=False
    ),
    "inception-torchscript": _images(
        "Inception as StyleGAN's TorchScript file", _inception_torchscript, files.INCEPTION_TORCHSCRIPT
    ),
    "i3d-torchscript": _videos(
        "I3D as StyleGAN-V's TorchScript file", _i3d_torchscript, files.I3D_TORCHSCRIPT
    ),
    "i3d-cdfvd": _videos("I3D as cd-fvd runs it", _i3d_cdfvd, files.I3D_CDFVD),
    "torchscript": NetworkEntry(
        summary="any TorchScript file that takes float32 frames in 0..255",
        takes="frames",
        load=_any_torchscript,
        usual=WeightFile(name="a TorchScript file of yours"),
        dimension=None,
        input_size=None,
        covariance="N - 1",
        options={},
    ),
}


def build_network(
    name: str, *, weights: str | Path | None, flag: str, presized: bool = False, device: str = "cpu"
) -> FeatureNetwork:
    """A network of `NETWORKS` with its weight file; ``presized`` says that frames come in its input size already.

    A TorchScript file is a program: take it from where you would take a program.

    Raises:
        ValueError: if there is no such network, or torch knows no such device.
        MissingDependency: if its library is not installed.
        MeropeError: if the weight file is missing or cannot be loaded, or the device is not there.
    """
    if name not in NETWORKS:
        raise ValueError(f"the feature network must be one of {', '.join(NETWORKS)}; got {name!r}.")
    entry = NETWORKS[name]
    _require_device(device)
    path = find_weights(weights, entry.usual, flag=flag)
    digest = file_sha256(path)
    usual = {None: "", digest: ", the usual file"}.get(entry.usual.sha256, ", not the usual file")
    loaded = entry.load(path, device, presized=presized, **entry.options)
    return FeatureNetwork(
        name=name,
        takes=entry.takes,
        sha256=digest,
        weights=path.name + usual,
        covariance=entry.covariance,
        dimension=entry.dimension,
        input_size=entry.input_size,
        min_frames=_I3D_FRAMES if entry.takes == "videos" else 1,
        batch_size=1 if entry.takes == "videos" else 16,
        device=device,
        **loaded,
    )


def _torchscript(path: Path, device: str) -> Any:
    try:
        return torch.jit.load(str(path), map_location=device).eval()
    except (RuntimeError, ValueError) as error:
        raise MeropeError(
            f"{path} is no TorchScript file that this torch reads: {str(error).splitlines()[0]:.200}. A file of plain "
            "weights goes with another --fid-features or --fvd-features."
        ) from error


def require_plain_weights(path: Path, other: str) -> None:
    """Refuse what is not tensors by name: torch-fidelity would run whatever a pickle says."""
    try:
        content = torch.load(path, weights_only=True, map_location="cpu")
    # A file that is none raises whatever its bytes lead pickle to.
    except Exception as error:
        raise MeropeError(
            f"{path} holds no plain weights: {str(error).splitlines()[0]:.200}. A TorchScript file goes with the "
            f"features '{other}'."
        ) from error
    if not isinstance(content, dict) or not all(isinstance(value, Tensor) for value in content.values()):
        raise MeropeError(f"{path} holds no plain weights; it should be a state_dict of tensors.")


def _require_device(name: str) -> None:
    try:
        kind = torch.device(name).type
    except RuntimeError:
        raise ValueError(
            f"device must be one that torch knows, such as cpu or cuda:0; got {name!r}."
        ) from None
    if kind == "cuda" and not torch.cuda.is_available():
        raise MeropeError(f"device {name!r} is not there: torch {torch.__version__} sees no GPU. Take 'cpu'.")


def _require(package: str, purpose: str) -> None:
    try:
        version({"torch_fidelity": "torch-fidelity", "cdfvd": "cd-fvd"}.get(package, package))
    except PackageNotFoundError:
        raise MissingDependency.for_extra(package, extra=EXTRA, purpose=purpose) from None
