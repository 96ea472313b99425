"""``merope overlay``: a camera's path drawn on a video, on the ground ahead and seen from above."""

from pathlib import Path

from merope.cli.pose_options import Format, Unit
from merope.cli.usage import UsageError


def overlay(
    video: Path,
    /,
    *,
    out: Path,
    poses: Path | None = None,
    format: Format | None = None,
    lens: Path | None = None,
    fov: float | None = None,
    fps: float | None = None,
    start: int = 0,
    trajectory_fps: float | None = None,
    times: Path | None = None,
    unit: Unit | None = None,
    scale: float = 1.0,
    camera_height: float = 1.65,
    path_width: float = 1.8,
    enlarge: int = 1,
    no_inset: bool = False,
    no_numbers: bool = False,
    lossless: bool = False,
) -> None:
    """Put the camera's path on a video: to see whether the video follows it.

    With a lens the rest of the path lies on the ground ahead as a ribbon, crossed by a mark every 5 m. The marks
    stay where they are in the world: where the video follows the path, they stick to the road. In the upper right
    corner the whole path is drawn from above; below stand time, metres driven, speed and turn.
    Frames keep their size and number.

    Args:
        video: A video file, a folder of PNG frames, or the folder of a generated clip, which brings its own poses,
            lens and frame rate.
        out: Video file to write, .mp4; with --lossless a folder for PNG frames.
        poses: Pose file of the camera; one pose per frame where it has no times and no rate is given.
        format: Format of that file: kitti, tum, npy, npz or merope.
        lens: Lens of the video, a JSON file; without a lens there is no ribbon, unless the pose file has one in it.
        fov: In place of a lens: horizontal field of view of a pinhole, degrees.
        fps: Frames per second of a folder of frames (default 10); a video file knows its own.
        start: Pose of the first frame.
        trajectory_fps: Poses per second where the file has no times (KITTI: 10).
        times: File with the time of each pose in seconds, one a line; in place of the rate.
        unit: What a length of 1 is in the file, where neither the file nor its format says so.
        scale: Metres per unit of the file.
        camera_height: Metres from the ground to the camera.
        path_width: Width of the ribbon, metres.
        enlarge: Whole factor by which small frames are enlarged first.
        no_inset: Leave out the path from above.
        no_numbers: Leave out time, distance, speed and turn.
        lossless: Write numbered PNG frames into a folder in place of an mp4.
    """
    from merope.cameras import CameraModel, Pinhole
    from merope.data.clips.generated import RESULT, read_generated
    from merope.data.clips.overlay import draw_path_inset
    from merope.data.clips.overlay import enlarge as enlarged
    from merope.data.clips.video import read_frames, read_video, write_frames, write_video
    from merope.data.lenses.files import read_lens
    from merope.data.poses.path_ahead import draw_path_ahead, draw_readout
    from merope.errors import MeropeError

    if not lossless and out.suffix.lower() != ".mp4":
        raise UsageError(f"--out must end in .mp4, or be a folder with --lossless; got {out}.")
    if lens is not None and fov is not None:
        raise UsageError("--lens and --fov both say what the lens is; keep one.")
    if poses is not None and format is None:
        raise UsageError("--format is missing: kitti, tum, npy, npz or merope. It is never guessed.")
    if enlarge < 1:
        raise UsageError(f"--enlarge must be 1 or more; got {enlarge}.")
    camera: CameraModel | None = None
    path = None
    if (video / RESULT).is_file():
        clip = read_generated(video)
        frames, rate = clip.frames(), clip.fps
        camera, path = clip.lens, clip.commanded
    elif video.is_dir():
        frames, rate = read_frames(video), 10.0 if fps is None else fps
    else:
        frames, exact = read_video(video)
        rate = float(exact)
    if poses is not None:
        from merope.data.poses.command_files import read_command

        command = read_command(
            poses,
            format=format or "kitti",
            num_frames=len(frames),
            fps=rate,
            start=start,
            trajectory_fps=trajectory_fps,
            times=times,
            unit=unit,
            scale=scale,
        )
        for note in (command.projection_note, *command.notes):
            if note:
                print(note)
        path = command.poses
        if command.camera is not None and camera is None:
            camera = CameraModel.from_dict(command.camera)
    if path is None:
        raise MeropeError(
            f"{video} is no generated clip and brings no poses: name a file with --poses and --format."
        )
    if lens is not None:
        camera = read_lens(lens)
    elif fov is not None:
        camera = Pinhole.from_fov(fov_x_deg=fov, height=frames.shape[1], width=frames.shape[2])
    if camera is not None and (camera.height, camera.width) != frames.shape[1:3]:
        raise MeropeError(
            f"the lens is for frames of {camera.height} x {camera.width} (height x width), the video's are "
            f"{frames.shape[1]} x {frames.shape[2]}. Give the lens of this video."
        )
    if enlarge > 1:
        frames = enlarged(frames, factor=enlarge)
        if camera is not None:
            camera = camera.resize(height=frames.shape[1], width=frames.shape[2])
    if camera is not None:
        frames = draw_path_ahead(frames, path, camera, camera_height=camera_height, width=path_width)
    if not no_inset:
        frames = draw_path_inset(frames, path)
    if not no_numbers:
        frames = draw_readout(frames, path, fps=rate)
    if lossless:
        write_frames(out, frames)
    else:
        write_video(out, frames, fps=rate)
    drawn = (
        "no lens given, so without the path on the ground"
        if camera is None
        else "with the path on the ground"
    )
    print(f"{len(frames)} frames of {frames.shape[1]} x {frames.shape[2]}, {drawn}; written to {out}")
