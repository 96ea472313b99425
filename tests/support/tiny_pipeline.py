"""Tiny Wan pipelines with cameras on them, and calls of a second; made once per test process."""

import functools
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from diffusers.utils import logging

from merope.adapters import attach
from merope.adapters.spec import VideoSpec, wan_spec
from merope.cameras import Pinhole
from merope.encodings import MeRoPE
from merope.generation.pipeline import MeropePipeline
from merope.geometry.poses import Poses
from merope.recipes.tiny_wan import make_tiny_wan
from merope.worlds.drives import drive
from tests.support.wan import awake

FRAMES = 9
PROMPT = "a car drives along the street"
VERSIONS = ("2.1", "2.2")


@functools.cache
def _folder() -> tempfile.TemporaryDirectory:
    logging.disable_progress_bar()
    return tempfile.TemporaryDirectory(prefix="merope-tests-")


@functools.cache
def wan_folder(version: str) -> Path:
    """A pipeline of the real classes without an adapter."""
    return make_tiny_wan(Path(_folder().name) / version, version=version)


def fresh_pipeline(version: str = "2.2", *, trained: bool = True, **options: Any) -> MeropePipeline:
    """A pipeline of one's own; its branches are away from zero if ``trained``."""
    pipe = MeropePipeline.from_pretrained(wan_folder(version), **options)
    pipe.set_progress_bar_config(disable=True)
    torch.manual_seed(7)
    pipe.adapter = attach(pipe.transformer, encoding=MeRoPE(head_dim=64), compression=2)
    if trained:
        awake(pipe.adapter)
    return pipe


@functools.cache
def _shared(version: str) -> MeropePipeline:
    return fresh_pipeline(version)


def pipeline(version: str = "2.2") -> MeropePipeline:
    """One with trained branches that all tests share; leave it as it is."""
    return _shared(version)


def size_of(version: str) -> dict[str, int]:
    """2 x 3 tokens."""
    cell = 32 if version == "2.2" else 16
    return {"height": 2 * cell, "width": 3 * cell}


def lens_of(version: str, fov_x_deg: float = 90.0) -> Pinhole:
    return Pinhole.from_fov(fov_x_deg=fov_x_deg, **size_of(version))


def trained_spec(version: str = "2.2", **changes: Any) -> VideoSpec:
    """What the tests' adapters say that they were trained for."""
    pipe = pipeline(version)
    values = {
        **size_of(version),
        "num_frames": FRAMES,
        "prefix_frames": 5,
        "fps": 10.0,
        "shift": 5.0,
        "camera": lens_of(version).to_dict(),
    }
    return wan_spec(pipe.transformer.config, pipe.vae.config, **{**values, **changes})


def path(kind: str = "curve", num_frames: int = FRAMES, seed: int = 1) -> Poses:
    return drive(kind, seed=seed, num_frames=num_frames, fps=10)


def given(version: str, num: int, seed: int = 0) -> np.ndarray:
    """Bytes that a tiny autoencoder can hold: one colour per frame and a gradient."""
    size = size_of(version)
    ramp = np.linspace(0, 120, size["width"])[None, None, :, None]
    tint = np.random.default_rng(seed).integers(0, 130, (num, 1, 1, 3))
    return np.broadcast_to(ramp + tint, (num, size["height"], size["width"], 3)).astype(np.uint8)


def made(pipe: MeropePipeline, version: str = "2.2", **options: Any) -> Any:
    """Two steps without guidance to latents, along one path, unless told otherwise."""
    values: dict[str, Any] = {
        "prompt": PROMPT,
        "poses": path(),
        "lens": lens_of(version),
        "num_frames": FRAMES,
        "num_inference_steps": 2,
        "guidance_scale": 1.0,
        "seeds": 3,
        "output_type": "latent",
        **size_of(version),
    }
    return pipe(**{**values, **options})
