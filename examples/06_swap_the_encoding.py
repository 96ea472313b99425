"""One camera encoding for another: the same rays, the same attention, another name.

Matrices with metres in them (GTA, UCPE) let logits and features grow with the drive; rotary phases of metres do not.
The additive encodings (CameraCtrl, ReCamMaster, SCoPE) are not here: they act inside a backbone, through `attach`.
"""

import warnings

import torch

import merope
from merope.encodings.registry import default_encoding
from merope.encodings.scale import ScaleWarning

ROWS, COLS, VIEWS = 3, 5, 4

camera = merope.Pinhole.from_fov(fov_x_deg=90, height=48, width=80)
dirs_cam, valid = merope.TokenGrid(rows=ROWS, cols=COLS).token_rays(camera)
query, key, value = torch.randn(3, 1, 2, VIEWS * ROWS * COLS, 128)


def straight_drive(length):
    """Views evenly along a drive of this many metres."""
    T_world_cam = torch.eye(4, dtype=torch.float64).repeat(1, VIEWS, 1, 1)
    T_world_cam[..., 2, 3] = torch.linspace(0, length, VIEWS)
    return merope.ViewRays.from_poses(
        T_world_cam, dirs_cam.expand(1, VIEWS, -1, -1), grid=(ROWS, COLS), camera=camera
    )


# Encodings in which metres enter linearly say once how far features grow. Here they are run in raw metres on purpose.
warnings.simplefilter("ignore", ScaleWarning)
print(f"{'encoding':<10}{'acts on':<9}largest output entry on a drive of 1, 10, 100, 1000 m")
for name in ("native", "gta", "prope", "ucpe", "raynova", "urope", "rayrope", "merope"):
    encoding = default_encoding(name, head_dim=128, num_heads=2)
    largest = [
        merope.camera_attention(query, key, value, encoding.operator(straight_drive(length))).abs().max()
        for length in (1, 10, 100, 1000)
    ]
    print(f"{name:<10}{encoding.acts_on:<9}" + "".join(f"{float(entry):10.3g}" for entry in largest))
    grew = largest[-1] > 20 * largest[0]
    assert grew == encoding.facts.needs_scale or name == "rayrope"

# One scale for all clips, estimated from motion, keeps such an encoding in range, and in metres between clips.
motion = [straight_drive(length).center_world[0] for length in (20.0, 45.0, 30.0)]
scale = merope.TranslationScale.from_motion(motion)
print(f"\nthree drives: {scale.per_metre:.3f} units per metre, made for {scale.reach:.0f} m")
scaled = merope.camera_attention(
    query, key, value, merope.GTA(head_dim=128, scale=scale).operator(straight_drive(45.0))
)
print(f"gta under it, 45 m: largest output entry {float(scaled.abs().max()):.3g}")
