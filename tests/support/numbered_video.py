"""Videos whose frames show their own number, at any times: what a reader decodes can be read off the pixels."""

from fractions import Fraction

import av
import numpy as np

TICKS = 90_000
"""Ticks a second of the stamps that these videos have."""


def numbered_frame(number, *, height=32, width=64):
    """A grey picture whose 8 x 8 blocks along the top are the bits of ``number``, black or white."""
    picture = np.full((height, width, 3), 128, np.uint8)
    for bit in range(8):
        picture[:8, 8 * bit : 8 * bit + 8] = 255 if number >> bit & 1 else 0
    return picture


def numbers_shown(frames):
    """The numbers that decoded frames show."""
    bits = frames[:, 2:6, :64, 0].reshape(len(frames), 4, 8, 8)[..., 2:6].mean((1, 3)) > 128
    return (bits @ (1 << np.arange(8))).tolist()


def write_numbered_video(path, times, *, header_rate=25, height=32, width=64, first=0):
    """Write frames first, first + 1, ... at these seconds, which may have any distances; a few frames apart is B frames."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=header_rate)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        stream.codec_context.time_base = stream.time_base = Fraction(1, TICKS)
        stream.options = {"crf": "10", "preset": "veryfast"}
        for number, time in enumerate(times):
            picture = numbered_frame(first + number, height=height, width=width)
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
            frame.pts, frame.time_base = round(time * TICKS), Fraction(1, TICKS)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())


def truncate(path, *, share=0.6):
    """Cut the end of a file off, as an interrupted download leaves it."""
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
