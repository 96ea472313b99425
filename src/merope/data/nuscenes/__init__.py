"""The tables of nuScenes, read without its devkit."""
