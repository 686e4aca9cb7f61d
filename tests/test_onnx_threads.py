"""Threads of torch and of ONNX Runtime, and the parts of a batch."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import test_pretrained
from onebyone import load, nets
from onebyone.nets import Adapted
from onebyone.nets.onnx import Session
from onebyone.statistics import lda
from onebyone.statistics.lda import LDA, LDAOptions
from onebyone.tensors import one_thread


@pytest.fixture
def three_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("three_threads")
def test_torch_has_one_thread_in_the_block_and_then_all_again() -> None:
    with one_thread():
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 3


@pytest.mark.usefixtures("three_threads")
@pytest.mark.parametrize("batch", ["n", 4])
def test_parts_of_a_batch_run_on_several_threads(
    tmp_path: Path, batch: str | int, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = test_pretrained.onnx_file(tmp_path / "net.onnx", [batch, 3, 2, 4])
    encoder = nets.create(name, (3, 2, 4))
    x = test_pretrained.random_bytes(401, 3, 2, 4)
    one_by_one = torch.cat([encoder(part) for part in x.split(3)])
    run, met, used = Session.run, threading.Barrier(3, timeout=60), set()

    def recorded(session: Session, part: Any, threads: int = 1) -> Any:
        if threading.get_ident() not in used:
            used.add(threading.get_ident())
            met.wait()  # until all three are here
        return run(session, part, threads)

    monkeypatch.setattr(Session, "run", recorded)
    assert torch.equal(encoder(x), one_by_one)
    assert len(used) == 3
    assert torch.equal(encoder(nets.scaled(x)), one_by_one)
    monkeypatch.setattr(Session, "run", lambda *_: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        encoder(x)
    assert torch.get_num_threads() == 3


def test_statistics_do_not_depend_on_the_parts_that_an_encoder_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    digits = load("digits")
    encoder = Adapted(nn.Sequential(nn.Conv2d(1, 6, 3), nn.ReLU()), digits.spec.shape, frozen=True)
    found = []
    for size in (2**26, 64 * 30):  # all at once, and 30 images at a time
        monkeypatch.setattr(lda, "ENCODED_BYTES", size)
        learner = LDA(LDAOptions(budget=2_000_000, encoder=encoder), digits.spec)
        learner.observe(digits.train_x, digits.train_y)
        found.append(learner)
    assert found[1].chunk == 30
    for name, tensor in found[0].moments.state_dict().items():
        torch.testing.assert_close(found[1].moments.state_dict()[name], tensor)
    assert torch.equal(found[0].kept.keys, found[1].kept.keys)
