"""The Fréchet distance between two Gaussians, with a matrix root that stays real when covariances are singular."""

import numpy as np
from jaxtyping import Float64

from merope.evaluation.fidelity.moments import Moments

Matrix = Float64[np.ndarray, "feature feature"]


def frechet_distance(real: Moments, generated: Moments, *, divisor: str = "N - 1") -> float:
    """|m1 - m2|^2 + tr(S1 + S2 - 2 (S1 S2)^(1/2)) (Fréchet 1957; Heusel et al. 2017), in float64, at least 0.

    Of the root only its trace is needed, which is the sum of the roots of the eigenvalues of S1^(1/2) S2 S1^(1/2). That
    matrix is symmetric and positive, so eigenvalues below 0 are rounding and count as 0: the result is real and finite
    also where N <= the number of features, where a general matrix root gives imaginary parts or overflows.

    ``divisor`` is that of the covariances, "N - 1" or "N".

    Raises:
        ValueError: if the numbers of features differ, or a set has fewer than two samples.
    """
    if real.mean.shape != generated.mean.shape:
        raise ValueError(
            f"both sets must have features of one network; got {len(real.mean)} and {len(generated.mean)} numbers each."
        )
    first, second = real.covariance(divisor), generated.covariance(divisor)
    return gaussian_distance(real.mean, first, generated.mean, second)


def gaussian_distance(
    mean_real: Float64[np.ndarray, "feature"],
    covariance_real: Matrix,
    mean_generated: Float64[np.ndarray, "feature"],
    covariance_generated: Matrix,
) -> float:
    """`frechet_distance` of means and covariances that are known."""
    root = _square_root(covariance_real)
    between = root @ covariance_generated @ root
    eigenvalues = np.linalg.eigvalsh((between + between.T) / 2)
    trace_of_root = float(np.sqrt(eigenvalues.clip(min=0)).sum())
    step = mean_real - mean_generated
    total = float(step @ step) + float(np.trace(covariance_real) + np.trace(covariance_generated))
    # Equal sets leave a difference of rounding, of either sign.
    return max(0.0, total - 2 * trace_of_root)


def _square_root(matrix: Matrix) -> Matrix:
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    return (vectors * np.sqrt(values.clip(min=0))) @ vectors.T
