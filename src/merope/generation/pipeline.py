"""`MeropePipeline`: diffusers' Wan pipeline, commanded by cameras and continued from given frames."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Literal, Self, get_args

import numpy as np
import torch
from diffusers import WanTransformer3DModel
from diffusers.callbacks import MultiPipelineCallbacks, PipelineCallback
from diffusers.pipelines.wan.pipeline_wan import WanPipeline
from diffusers.utils import BaseOutput
from jaxtyping import Float
from torch import Tensor

from merope.adapters import CameraAdapter, CameraSignals, load_adapter, save_adapter
from merope.adapters.command import latent_matrices, latent_rays
from merope.adapters.finding import ADAPTER_FILE
from merope.adapters.flow import predict_velocity
from merope.adapters.spec import VideoSpec, wan_spec
from merope.cameras import CameraModel, Pinhole
from merope.data.caches.latents import WanLatents, frames_from_video, video_from_frames
from merope.errors import MeropeError
from merope.files import atomic_folder
from merope.generation.color import prefix_color_jump
from merope.generation.denoise import Conditions, denoise
from merope.generation.flow_schedule import noise_levels, require_flow_scheduler, with_flow_shift
from merope.generation.model_files import (
    ADAPTER_FOLDER,
    HUB_OPTIONS,
    ModelConfigs,
    trained_transformer,
)
from merope.generation.request import PrefixFrames, Request, check_request
from merope.geometry.poses import Poses

OutputType = Literal["np", "pt", "pil", "uint8", "latent"]


@dataclass
class MeropePipelineOutput(BaseOutput):
    """Videos, and what their making can tell."""

    frames: Any
    """Videos in [0, 1] as "np" [clip, time, H, W, 3] or "pt" [clip, time, 3, H, W]; bytes as "uint8" or "pil" (a list of
    images per clip); "latent": normalised latents [clip, chan, time, row, col]."""
    sigmas: list[float] | None = None
    """Noise level of every call of the transformer, and the last one."""
    prefix_color_jump: list[float] | None = None
    """Distance in L*a*b* between the mean colours of the last given and the first generated frame of each clip; None
    without given frames or for latents."""


class MeropePipeline(WanPipeline):
    """Videos along commanded cameras from text and, if given, the first frames.

    A `diffusers.WanPipeline` with a `CameraAdapter` on its transformer: components, offloading, LoRA, tiled decoding and
    schedulers are diffusers' own. Without given frames it takes the same steps as ``WanPipeline``: under an adapter whose
    branches are zero the videos are equal to the bit (in float32; in half precision guidance and scheduler
    compute in float32 here).
    """

    # Components and state that diffusers sets by their names.
    transformer: Any
    vae: Any
    scheduler: Any
    config: Any
    video_processor: Any
    vae_scale_factor_spatial: int

    adapter: CameraAdapter | None = None
    """The cameras on the transformer; set it after `merope.adapters.attach(pipe.transformer, ...)`."""
    trained: VideoSpec | None = None
    """What the adapter was trained to make: the defaults of a call."""
    summary: Mapping[str, Any] = {}
    """How the adapter was trained, as its file tells it."""

    @classmethod
    def from_pretrained(
        cls,
        pretrained_model_name_or_path: str | PathLike[Any],
        *,
        adapter: str | Path | None = None,
        other_base: bool = False,
        **options: Any,
    ) -> Self:
        """A pipeline in diffusers' layout, by folder or hub name, and its adapter.

        ``adapter`` is a file, a folder (such as a training run's ``model``) or a hub name; None takes the pipeline's own
        ``adapter/``, where there is one. A folder that also holds a ``transformer`` was trained with it and brings it.
        ``other_base`` takes any base into which the adapter's weights fit.

        ``options`` are diffusers'. With one ``dtype`` for all components the autoencoder stays in float32, as diffusers
        recommends for Wan; a dictionary says otherwise. Branches are float32 and compute in the transformer's precision.

        Raises:
            ValueError: if the pipeline has two transformers.
            CheckpointMismatch: if the adapter does not fit; before weights are read, where its description tells.
        """
        name = str(pretrained_model_name_or_path)
        hub = {key: options[key] for key in HUB_OPTIONS if key in options}
        configs = ModelConfigs.read(name, adapter=adapter, **hub)
        dtype = options.pop("torch_dtype", None) or options.pop("dtype", None)
        if isinstance(dtype, torch.dtype) and "vae" not in options:
            dtype = {"default": dtype, "vae": torch.float32}
        if dtype is not None:
            options["dtype"] = dtype
        beside = trained_transformer(configs.adapter_file)
        if beside is not None and "transformer" not in options:
            chosen = dtype.get("transformer", dtype.get("default")) if isinstance(dtype, dict) else dtype
            options["transformer"] = WanTransformer3DModel.from_pretrained(beside, dtype=chosen)
        pipeline = super().from_pretrained(name, **options)
        if configs.adapter_file is not None and configs.adapter is not None:
            pipeline.adapter = load_adapter(configs.adapter_file, pipeline.transformer, other_base=other_base)
            pipeline.trained, pipeline.summary = configs.trained, configs.adapter["summary"]
        return pipeline

    def save_pretrained(  # type: ignore[override]
        self,
        save_directory: str | PathLike[Any],
        safe_serialization: bool = True,
        variant: str | None = None,
        max_shard_size: int | str | None = None,
    ) -> None:
        """Write a folder that ``diffusers.WanPipeline`` loads too, and the adapter in its ``adapter/``.

        The folder appears whole or not at all. `push_to_hub` uploads the same.

        Raises:
            ValueError: if LoRA weights are loaded, which diffusers would write under names that it does not read back.
            FileExistsError: if the folder is there already and not empty.
        """
        if getattr(self.transformer, "peft_config", None):
            raise ValueError(
                "the transformer carries LoRA weights, which this folder has no place for. Before saving call "
                "pipe.unload_lora_weights(), after pipe.fuse_lora() to keep their effect."
            )
        with (
            atomic_folder(save_directory) as folder,
            nullcontext() if self.adapter is None else self.adapter.taken_off(),
        ):
            flags = {name: self.config[name] for name in ("boundary_ratio", "expand_timesteps")}
            plain: Any = WanPipeline(**self.components, **flags)
            plain.save_pretrained(
                folder,
                safe_serialization=safe_serialization,
                variant=variant,
                max_shard_size=max_shard_size,
            )
            if self.adapter is not None:
                save_adapter(
                    folder / ADAPTER_FOLDER / ADAPTER_FILE,
                    self.adapter,
                    summary=dict(self.summary),
                    spec=self.trained,
                )

    @property
    def configs(self) -> ModelConfigs:
        """What requests are checked against."""
        described = None
        if self.adapter is not None:
            # What it is attached to needs no comparison.
            described = {
                "base": {},
                "pose_policy": self.adapter.pose_policy,
                "input_map": self.adapter.input_map,
                "summary": self.summary,
                "spec": None if self.trained is None else self.trained.to_dict(),
            }
        return ModelConfigs(
            pipeline=self.config,
            transformer=self.transformer.config,
            vae=self.vae.config,
            adapter=described,
        )

    @torch.no_grad()
    def __call__(  # type: ignore[override]
        self,
        prompt: str | list[str] | None = None,
        *,
        poses: Poses | Sequence[Poses],
        lens: CameraModel | Sequence[CameraModel] | None = None,
        prefix: PrefixFrames | None = None,
        up_world: Sequence[float] | Sequence[Sequence[float]] | None = None,
        negative_prompt: str | list[str] | None = None,
        height: int | None = None,
        width: int | None = None,
        num_frames: int | None = None,
        num_inference_steps: int = 50,
        guidance_scale: float = 5.0,
        flow_shift: float | None = None,
        generator: torch.Generator | list[torch.Generator] | None = None,
        seeds: int | np.integer | Sequence[int] | None = None,
        latents: Float[Tensor, "clip chan time row col"] | None = None,
        prompt_embeds: Float[Tensor, "prompts words dim"] | None = None,
        negative_prompt_embeds: Float[Tensor, "negatives negative_words dim"] | None = None,
        output_type: OutputType = "np",
        return_dict: bool = True,
        callback_on_step_end: Callable[..., Any] | PipelineCallback | MultiPipelineCallbacks | None = None,
        callback_on_step_end_tensor_inputs: Sequence[str] = ("latents",),
        max_sequence_length: int = 512,
        allow_untrained: bool = False,
    ) -> MeropePipelineOutput | tuple[Any]:
        """Videos along ``poses``, one per clip; what there is one of (prompt, poses, lens, prefix) serves all clips.

        ``poses`` has one camera per frame, in metres unless the adapter was trained on another unit; ``lens`` is for frames
        of the video's size, None takes the adapter's own. ``prefix`` are the first frames, bytes [n, H, W, 3] or an image:
        the autoencoder's latents of them are clean, with timestep 0, at every step. Sizes and frames left out are those
        that the adapter was trained for. ``up_world``, the direction against gravity in the world of the poses, is needed by
        an adapter with an input map and not read by others.

        Guidance is on text alone: both passes see the same cameras and prefix, and at a ``guidance_scale`` of 1 there is
        one pass. ``flow_shift`` sets the scheduler's time shift for this call. ``seeds`` draws each clip's noise on the
        CPU in float32 from its own seed, whatever clips it is generated beside; ``generator`` and ``latents`` are as in
        diffusers, and so are the callback, with ``pipe._interrupt = True`` to stop, and the other arguments.

        Raises:
            ValueError, TypeError, TrajectoryError: as `check_request`; if counts differ, if the scheduler is no flow
                scheduler or has no time shift, or if the cameras are on another transformer than the pipeline's.
            MeropeError: if the cameras would be ignored: no adapter, or all of its branches are zero; or if the result is
                not finite.
        """
        if isinstance(callback_on_step_end, PipelineCallback | MultiPipelineCallbacks):
            callback_on_step_end_tensor_inputs = callback_on_step_end.tensor_inputs
        wanted = list(callback_on_step_end_tensor_inputs)
        if output_type not in get_args(OutputType):
            raise ValueError(f"output_type must be one of {get_args(OutputType)}; got {output_type!r}.")
        if num_inference_steps < 1:
            raise ValueError(f"num_inference_steps must be >= 1; got {num_inference_steps}.")
        if sum(source is not None for source in (generator, seeds, latents)) > 1:
            raise ValueError("noise comes from one of seeds, generator and latents; got more than one.")
        # Any: a Sequence of seeds may be an array too.
        request = check_request(
            self.configs,
            poses=poses,
            lens=lens,
            prefix=prefix,
            up_world=up_world,
            height=height,
            width=width,
            num_frames=num_frames,
            counts=_counts(
                prompt=prompt,
                negative_prompt=negative_prompt,
                prompt_embeds=prompt_embeds,
                negative_prompt_embeds=negative_prompt_embeds,
                generator=generator,
                seeds=seeds,
                latents=latents,
            ),
            allow_untrained=allow_untrained,
        )
        spec, clips = request.spec, request.num_clips
        self.check_inputs(
            prompt,
            negative_prompt,
            spec.height,
            spec.width,
            prompt_embeds,
            negative_prompt_embeds,
            wanted,
        )
        self.require_cameras(allow_untrained)
        self._guidance_scale, self._attention_kwargs = guidance_scale, None
        self._current_timestep, self._interrupt = None, False
        if seeds is not None:
            each = list(seeds) if isinstance(seeds, Iterable) else [seeds]
            generator = [torch.Generator().manual_seed(int(seed)) for seed in each * (clips // len(each))]

        with self._time_shift(flow_shift):
            self.scheduler.set_timesteps(num_inference_steps, device=self._execution_device)
            require_flow_scheduler(self.scheduler)
            sigmas = noise_levels(self.scheduler)
            text = self._text(
                clips, prompt, negative_prompt, prompt_embeds, negative_prompt_embeds, max_sequence_length
            )
            noise = self._noise(request, generator, latents)
            clean = self._clean(request, noise)
            cameras = self._signals(request)
            given = Conditions(spec=spec, clean=clean, cameras=cameras, text=text, generator=generator)
            made = denoise(self, noise, given, callback_on_step_end, wanted)
        if not bool(made.isfinite().all()):
            # The decoder would make a black video of them.
            raise MeropeError(
                f"the latents are not finite after {len(sigmas) - 1} steps in {self.transformer.dtype}. Float16 may "
                "overflow in the text encoder or the transformer: use bfloat16 or float32. Or look at latents and callback."
            )
        output = self._output(made, spec, output_type, sigmas)
        self.maybe_free_model_hooks()
        return output if return_dict else (output.frames,)

    @torch.no_grad()
    def self_check(self) -> float:
        """Answer of the transformer to two trajectories, on the same small noise: how much they differ, relatively.

        Raises:
            MeropeError: if they are equal to the bit: cameras are ignored.
        """
        if self.adapter is None:
            raise MeropeError("there is nothing to check: the pipeline has no camera adapter.")
        self.require_cameras(allow_untrained=True)
        cell = self.vae_scale_factor_spatial * self.transformer.config.patch_size[1]
        size = {"height": 4 * cell, "width": 4 * cell}
        spec = wan_spec(
            self.transformer.config,
            self.vae.config,
            **size,
            num_frames=9,
            prefix_frames=0,
            fps=10.0,
            shift=1.0,
            pose_policy=self.configs.pose_policy,
        )
        lens = Pinhole.from_fov(fov_x_deg=90, **size)
        noise = torch.randn(1, *spec.latent_shape, generator=torch.Generator().manual_seed(0))
        device, dtype = self._execution_device, self.transformer.dtype
        noise = noise.to(device)
        text = torch.zeros(1, 1, self.transformer.config.text_dim, device=device, dtype=dtype)
        answers = []
        for step in (0.0, 1.0):
            T_world_cam = torch.eye(4, dtype=torch.float64).repeat(spec.num_frames, 1, 1)
            T_world_cam[:, 2, 3] = step * torch.arange(spec.num_frames)
            rays = latent_rays(latent_matrices([Poses.from_matrices(T_world_cam)], spec), spec, [lens])
            answers.append(
                predict_velocity(
                    self.transformer,
                    self.adapter,
                    noise,
                    noise,
                    torch.full((1,), 0.5, device=device),
                    self.adapter.signals(rays, device=device),
                    spec,
                    text=text,
                    per_token=self.configs.timestep_per_token,
                    dtype=dtype,
                )
            )
        self.maybe_free_model_hooks()
        still, ahead = answers
        if torch.equal(still, ahead):
            raise MeropeError(
                "the transformer answers a camera that stands and one that drives ahead with the same bits: cameras are "
                "ignored. Are the branches untrained, or the encoding one that sees no cameras?"
            )
        return float((ahead - still).norm() / still.norm())

    def require_cameras(self, allow_untrained: bool) -> None:
        """Whether the cameras reach the transformer and do something there.

        Raises:
            ValueError: if they are on another transformer than the pipeline's.
            MeropeError: if all branches are zero, unless ``allow_untrained``.
        """
        if self.adapter is None:
            return
        if self.adapter.transformer is not getattr(self.transformer, "_orig_mod", self.transformer):
            raise ValueError(
                "the adapter is on another transformer than the pipeline's. Attach or load it on pipe.transformer and set "
                "pipe.adapter."
            )
        if self.adapter.is_zero and not allow_untrained:
            raise MeropeError(
                "the camera branches are all zero, so the cameras would be ignored. Load a trained adapter, or pass "
                "allow_untrained=True to run the base model."
            )

    @contextmanager
    def _time_shift(self, shift: float | None) -> Iterator[None]:
        """Within the block the scheduler has this time shift; None leaves it alone."""
        own = self.scheduler
        if shift is not None:
            self.scheduler = with_flow_shift(own, shift)
        try:
            yield
        finally:
            self.scheduler = own

    def _text(
        self,
        clips: int,
        prompt: str | list[str] | None,
        negative_prompt: str | list[str] | None,
        prompt_embeds: Tensor | None,
        negative_prompt_embeds: Tensor | None,
        max_sequence_length: int,
    ) -> dict[str, Tensor]:
        """Embeddings of every clip, by diffusers' names; the negative ones where there is guidance."""
        device = self._execution_device
        # diffusers wants as many negative prompts as prompts.
        if isinstance(negative_prompt, list) and len(negative_prompt) == 1:
            negative_prompt = negative_prompt[0]
        elif isinstance(negative_prompt, list) and prompt is not None:
            prompts = [prompt] if isinstance(prompt, str) else prompt
            prompt = prompts * (len(negative_prompt) // len(prompts))
        found = self.encode_prompt(
            prompt=prompt,  # type: ignore[arg-type]
            negative_prompt=negative_prompt,
            do_classifier_free_guidance=self.do_classifier_free_guidance,
            prompt_embeds=prompt_embeds,
            negative_prompt_embeds=negative_prompt_embeds,
            max_sequence_length=max_sequence_length,
            device=device,
        )
        return {
            name: text.to(device, self.transformer.dtype).expand(clips, -1, -1)
            for name, text in zip(("prompt_embeds", "negative_prompt_embeds"), found, strict=True)
            if text is not None
        }

    def _noise(
        self,
        request: Request,
        generator: torch.Generator | list[torch.Generator] | None,
        latents: Tensor | None,
    ) -> Tensor:
        """Noise of every clip, float32: drawn on the generators' device."""
        spec, clips = request.spec, request.num_clips
        if latents is not None and tuple(latents.shape[1:]) != spec.latent_shape:
            raise ValueError(
                f"latents must have shape {[clips, *spec.latent_shape]}; got {list(latents.shape)}."
            )
        return self.prepare_latents(
            clips,
            spec.latent_channels,
            spec.height,
            spec.width,
            spec.num_frames,
            torch.float32,
            self._execution_device,
            generator,
            None if latents is None else latents.expand(clips, -1, -1, -1, -1),
        )

    def _clean(self, request: Request, noise: Tensor) -> Tensor:
        """Latents of the given frames; without any, no frames of them."""
        if request.prefix is None:
            return noise[:, :, :0]
        # A copy: the same frames for all clips are one read-only view.
        frames = torch.from_numpy(np.array(request.prefix))
        return WanLatents(self.vae).encode(video_from_frames(frames)).to(noise.device)

    def _signals(self, request: Request) -> CameraSignals | None:
        """The cameras of all clips, made once for all steps and both passes of guidance."""
        if self.adapter is None:
            return None
        matrices = latent_matrices(request.poses, request.spec, up_world=request.up_world)
        rays = latent_rays(matrices, request.spec, request.lenses)
        return self.adapter.signals(rays, device=self._execution_device)

    def _output(
        self, latents: Tensor, spec: VideoSpec, output_type: OutputType, sigmas: list[float]
    ) -> MeropePipelineOutput:
        if output_type == "latent":
            return MeropePipelineOutput(frames=latents, sigmas=sigmas)
        video = WanLatents(self.vae).decode(latents)
        if output_type == "uint8":
            frames = frames_from_video(video).cpu().numpy()
        else:
            frames = self.video_processor.postprocess_video(video, output_type=output_type)
        jumps = prefix_color_jump(video, spec.prefix_frames).tolist() if spec.prefix_frames else None
        return MeropePipelineOutput(frames=frames, sigmas=sigmas, prefix_color_jump=jumps)


def _counts(**arguments: Any) -> dict[str, int]:
    """How many there are of the arguments that may hold one per clip."""
    return {
        name: len(value)
        for name, value in arguments.items()
        if value is not None and not isinstance(value, str | int | np.integer | torch.Generator)
    }
