"""What a backend's errors are held against: Eq. 1 in float64, and by plain torch in the dtype of the inputs."""

import torch

from merope.attention import camera_attention
from merope.attention.reference import _dense_with_extras


def gradients(attend, tensors, weights):
    """Output, and the gradients of (output * weights).sum() by the inputs."""
    leaves = [tensor.clone().requires_grad_() for tensor in tensors]
    out = attend(*leaves)
    return [out.detach(), *torch.autograd.grad((out * weights.to(out.dtype)).sum(), leaves)]


def exact(tensors, operator, weights, *, backend="reference", **call):
    """Output and gradients in float64."""
    return gradients(
        lambda *qkv: camera_attention(*qkv, operator, backend=backend, **call),
        [x.double() for x in tensors],
        weights,
    )


def plain(tensors, operator, weights, *, extra_tokens=0, key_mask=None, frame_causal=False):
    """Eq. 1 by plain torch: transformed keys and values, logits, softmax and sums, all in the dtype of the inputs."""
    pairwise = _dense_with_extras(operator, extra_tokens).to(tensors[0].dtype)
    acts_on = operator.acts_on
    mask = torch.ones(tensors[0].shape[2], tensors[1].shape[2], dtype=torch.bool)
    if frame_causal:
        per_camera = operator.num_queries // operator.num_query_cameras
        camera = torch.arange(operator.num_queries) // per_camera
        limit = operator.num_keys - operator.num_queries + (camera + 1) * per_camera
        mask[: operator.num_queries, : operator.num_keys] = torch.arange(operator.num_keys) < limit[:, None]
        mask[operator.num_queries :, : operator.num_keys] = False
    mask = mask[None, None]
    if key_mask is not None:
        mask = mask & key_mask[:, None, None]

    def attend(q, k, v):
        queries = q.shape[2]
        keys, values = (
            torch.einsum("bhacde,bhce->bhacd", pairwise.expand(-1, q.shape[1], -1, -1, -1, -1), x)
            if part in acts_on
            else x[:, :, None].expand(-1, -1, queries, -1, -1)
            for part, x in (("k", k), ("v", v))
        )
        logits = torch.einsum("bhad,bhacd->bhac", q, keys) / q.shape[-1] ** 0.5
        weights_of_keys = logits.masked_fill(~mask, float("-inf")).softmax(-1)
        return torch.einsum("bhac,bhacd->bhad", weights_of_keys, values)

    return gradients(attend, tensors, weights)
