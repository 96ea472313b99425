"""One clip: frames, poses, lens and rate, as a folder, a video, or a generated one."""
