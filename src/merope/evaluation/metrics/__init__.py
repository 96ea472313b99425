"""Trajectories in, numbers out: the metrics of appendix B.2 and the trajectory errors of visual odometry."""
