"""Adapters on transformers whose weights are spread over two processes: attach, then shard; never the other way."""

import torch.multiprocessing as mp

from tests.support.sharded_wan import compare


def test_an_adapter_that_is_sharded_with_its_transformer_gives_the_same_outputs_and_gradients(tmp_path):
    mp.spawn(compare, args=(2, str(tmp_path)), nprocs=2)
    said = (tmp_path / "said").read_text().splitlines()
    assert len(said) == 6
    for saving in (said[0], said[2]):
        assert "is a DTensor on cpu: sharded" in saving
        assert "pass them as tensors=" in saving
    # Nothing is learned where channels are carved.
    assert said[4] == "taken"
    for attaching in said[1::2]:
        assert attaching.startswith("the weights of block 0 are sharded")
        assert "Attach first (or load the adapter), then fully_shard" in attaching
