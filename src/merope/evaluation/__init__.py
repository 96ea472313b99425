"""Recovered against commanded trajectories: the paper's metrics, pose estimators, plots and reports."""

from merope.evaluation.estimators.base import PoseEstimator, Recovered, RecoveryFailed
from merope.evaluation.result import ClipResult, EvaluationResult, Scores, Summary
from merope.evaluation.scoring import ClipPair, evaluate_clip, evaluate_clips

__all__ = [
    "ClipPair",
    "ClipResult",
    "EvaluationResult",
    "PoseEstimator",
    "Recovered",
    "RecoveryFailed",
    "Scores",
    "Summary",
    "evaluate_clip",
    "evaluate_clips",
]
