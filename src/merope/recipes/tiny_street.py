"""`tiny-street`: the whole system at 40 x 64 pixels, trainable on two cores."""

from typing import Any

from merope.adapters.command import spec_lens
from merope.adapters.spec import VideoSpec
from merope.cameras import Pinhole
from merope.encodings.registry import default_encoding, encoding_to_config
from merope.training.config import OptimizerConfig, TrainConfig
from merope.training.street_clips import StreetClipsConfig


def tiny_street_spec() -> VideoSpec:
    """25 frames of 40 x 64 pixels at 10 Hz, 9 of them given, seen through a 90 degree lens."""
    camera = Pinhole.from_fov(fov_x_deg=90.0, height=40, width=64)
    return VideoSpec(
        height=40,
        width=64,
        num_frames=25,
        prefix_frames=9,
        fps=10.0,
        camera=camera.to_dict(),
        latent_channels=96,
        shift=2.0,
        prediction="clean",
    )


def tiny_street(*, encoding: str = "merope", steps: int = 3000) -> TrainConfig:
    """A Wan transformer of 4.3 M parameters with a camera branch in every block, trained from scratch.

    Heads have the paper's 128 channels, so the head layout is the paper's own; compression 2 leaves the
    branch one head. ``encoding`` is any registered name (``merope encodings`` lists them); all share data, seed
    and steps, and those with a branch its parameters. An encoding in which metres enter linearly gets its scale from
    the clips (`with_motion_scale`). One world is rendered for every three steps, from 64 to 1000 of them.

    Raises:
        ValueError: if no encoding has this name.
    """
    # Compression 2 on two heads of the backbone leaves the branch one.
    chosen = default_encoding(encoding, head_dim=128, num_heads=1)
    transformer: dict[str, Any] = {
        "patch_size": [1, 1, 1],
        "num_attention_heads": 2,
        "attention_head_dim": 128,
        "in_channels": 96,
        "out_channels": 96,
        "text_dim": 16,
        "freq_dim": 128,
        "ffn_dim": 512,
        "num_layers": 4,
        "cross_attn_norm": True,
        "qk_norm": "rms_norm_across_heads",
        "rope_max_seq_len": 64,
    }
    return TrainConfig(
        name=f"tiny-street-{encoding}",
        spec=tiny_street_spec(),
        transformer=transformer,
        encoding=encoding_to_config(chosen),
        compression=2,
        schedule="every",
        trains="all",
        steps=steps,
        batch_size=8,
        num_worlds=min(1000, max(64, steps // 3)),
        # A short run is checkpointed several times too, always at a log entry.
        checkpoint_every=min(250, max(20, steps // 80 * 20)),
        optimizer=OptimizerConfig(
            kind="muon", learning_rate=1.5e-3, beta2=0.98, warmup_steps=100, decay="cosine"
        ),
    )


def tiny_street_clips(config: TrainConfig) -> StreetClipsConfig:
    """The rendered clips that a tiny-street run trains on."""
    return StreetClipsConfig(
        num_worlds=config.num_worlds,
        first_seed=0,
        num_frames=config.clip_frames,
        turn_start=config.turn_start,
        fps=config.spec.fps,
        camera=spec_lens(config.spec).to_dict(),
    )
