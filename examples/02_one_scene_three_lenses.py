"""Three lenses, one interface: rays of the same token under a pinhole, a fisheye and a panorama.

Every lens gives unit rays and a mask. Beyond 180 degrees there is no image plane to normalise by, and an
encoding that works on rays does not need one.
"""

import math

import torch

import merope

HEIGHT, WIDTH = 96, 160
GRID = merope.TokenGrid(rows=6, cols=10)

lenses = {
    "pinhole 90": merope.Pinhole.from_fov(fov_x_deg=90, height=HEIGHT, width=WIDTH),
    "unified 200": merope.UnifiedCamera.from_fov(fov_x_deg=200, xi=0.9, height=HEIGHT, width=WIDTH),
    "panorama": merope.Equirectangular.full_sphere(height=HEIGHT, width=WIDTH),
}

for name, lens in lenses.items():
    dirs_cam, valid = GRID.token_rays(lens)
    widest = math.degrees(torch.acos(dirs_cam[valid][:, 2].clamp(-1, 1)).max())
    print(
        f"{name:<12} {int(valid.sum()):>3} of {len(valid)} tokens have a ray; the widest is {widest:5.1f} deg off axis"
    )

    # What a lens projects it also unprojects.
    pixels, seen = lens.project(5.0 * dirs_cam[valid])
    again, _ = lens.unproject(pixels)
    assert seen.all()
    assert torch.allclose(again, dirs_cam[valid], atol=1e-9)
