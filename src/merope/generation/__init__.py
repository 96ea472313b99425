"""Generation: prefix frames, cameras and a seed to video."""

from merope.generation.model import VideoModel, load_video_model
from merope.generation.sample import generate, sample_latents
from merope.generation.trajectory import check_command

__all__ = ["VideoModel", "check_command", "generate", "load_video_model", "sample_latents"]
