"""Errors of the fused kernel in Triton's interpreter, beside those of plain torch in the same dtype, against float64.

``python -m benchmarks.fused_accuracy`` from the top of the checkout. Six draws of 2 clips x 2 heads x 18 tokens; a Markdown
table with the mean and the largest error of the output and of the gradients, as multiples of plain torch's.
"""

DRAWS = 6
NAMES = ("output", "grad q", "grad k", "grad v")


def main() -> None:
    # The interpreter's process imports this file first, and must not have imported triton before it is told to interpret.
    import torch

    from merope.cameras.scenes import random_drive
    from merope.encodings import MeRoPE
    from tests.support.interpreter import interpreter
    from tests.support.plain import exact, plain

    print("| channels | dtype | baseline | " + " | ".join(NAMES) + " |")
    print("|---|---|---|" + "---|" * len(NAMES))
    with interpreter() as worker:
        for head_dim, reach in ((64, 20.0), (64, 1000.0), (128, 20.0), (192, 20.0)):
            for dtype in (torch.float32, torch.float16, torch.bfloat16):
                drive = random_drive(0, views=3, grid=(2, 3), reach=reach)
                encoding = MeRoPE(head_dim=head_dim)
                exact_operator, operator = (
                    encoding.operator(drive, dtype=torch.float64),
                    encoding.operator(drive),
                )
                ours, naive = [], []
                for seed in range(DRAWS):
                    draw = torch.Generator().manual_seed(seed)
                    shape = (2, 2, 18, head_dim)
                    tensors = [torch.randn(shape, generator=draw).to(dtype) for _ in range(3)]
                    weights = torch.randn(shape, generator=draw, dtype=torch.float64)
                    truth = exact(tensors, exact_operator, weights)
                    for errors, found in (
                        (ours, worker.attend(tensors, operator, weights)),
                        (naive, plain(tensors, exact_operator, weights)),
                    ):
                        errors.append([(x - y).abs() for x, y in zip(found, truth, strict=True)])
                cells = []
                for index in range(len(NAMES)):
                    got, other = (torch.stack([run[index] for run in runs]) for runs in (ours, naive))
                    cells.append(
                        f"{got.mean() / other.mean():.2f}, {got.max() / other.max():.2f} of "
                        f"{other.mean():.1e}, {other.max():.1e}"
                    )
                name = str(dtype).removeprefix("torch.")
                print(f"| {head_dim} | {name} | {reach:g} m | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
