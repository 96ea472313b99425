"""Generation frame by frame: keys and values are kept as they are, with their cameras.

In MeRoPE a transformed key belongs to one query camera, so a cache of transformed keys would be of no use to the next frame.
"""

import torch

import merope
from merope.adapters.cache import KeyValueCache

ROWS, COLS, HEADS = 3, 5, 2
CHUNKS = [(0, 3), (3, 5), (5, 8)]
NUM_VIEWS = CHUNKS[-1][1]

T_world_cam = torch.eye(4, dtype=torch.float64).repeat(1, NUM_VIEWS, 1, 1)
T_world_cam[..., 2, 3] = 2.0 * torch.arange(NUM_VIEWS)
camera = merope.Pinhole.from_fov(fov_x_deg=90, height=48, width=80)
dirs_cam, valid = merope.TokenGrid(rows=ROWS, cols=COLS).token_rays(camera)


def views(first, last):
    """The cameras of a chunk, in the world and on the clock of the whole drive."""
    return merope.ViewRays.from_poses(
        T_world_cam[:, first:last],
        dirs_cam.expand(1, last - first, -1, -1),
        grid=(ROWS, COLS),
        time=torch.arange(first, last),
    )


def tokens(features, first, last):
    """A chunk's tokens."""
    return features[:, :, first * ROWS * COLS : last * ROWS * COLS]


encoding = merope.MeRoPE(head_dim=128)
query, key, value = torch.randn(3, 1, HEADS, NUM_VIEWS * ROWS * COLS, 128)
operator = encoding.operator(views(0, NUM_VIEWS))
whole = merope.camera_attention(query, key, value, operator, frame_causal=True)

cache = KeyValueCache(encoding)
for first, last in CHUNKS:
    cache.append(tokens(key, first, last), tokens(value, first, last), views(first, last))
    # The geometry of the chunk is made once: the caches of all layers take it, and so does every denoising step.
    geometry = cache.geometry(last - first)
    out = cache.attend(tokens(query, first, last), geometry=geometry)
    error = (out - tokens(whole, first, last)).abs().max()
    print(
        f"frames {first} to {last - 1}: {cache.nbytes / 1024:.0f} KiB kept; off the whole clip by {float(error):.1e}"
    )
    assert error < 1e-5

# However many cameras ask, the same bytes are kept.
before = cache.nbytes
for num_cameras in (1, NUM_VIEWS):
    cache.attend(tokens(query, NUM_VIEWS - num_cameras, NUM_VIEWS))
assert cache.nbytes == before

# A window of four cameras: the same memory however long the drive becomes.
window = KeyValueCache(encoding, max_cameras=4)
for frame in range(NUM_VIEWS):
    window.append(tokens(key, frame, frame + 1), tokens(value, frame, frame + 1), views(frame, frame + 1))
    window.attend(tokens(query, frame, frame + 1))
print(f"a window: {window.num_cameras} of {NUM_VIEWS} cameras, {window.nbytes / 1024:.0f} KiB")
