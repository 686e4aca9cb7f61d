"""Memory stays bounded, however large the samples are: the peak is the input and a bounded amount.

Peak memory is that of a process and never goes down, so each case has a process of its own.
"""

import subprocess
import sys

import pytest

BOUND = 160  # MB beyond the input, which is 60 MB of bytes or 480 MB of float64

SCRIPT = """
import resource
import sys

import numpy as np
import torch

import onebyone
from onebyone.data.dataset import check_samples

torch.set_num_threads(1)
task, dtype = sys.argv[1:]
shape, frames = (540, 960, 3), 40
clf = onebyone.OnlineClassifier(method="patch-lda", memory="1MB", augment="none")
few = np.random.default_rng(0).integers(0, 256, (2, *shape), np.uint8).astype(dtype)
clf.partial_fit(few, [0, 1])
clf.predict(few)
x = np.full((frames, *shape), 100, dtype)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
if task == "predict":
    clf.predict(x)
elif task == "statistics":
    clf._state.learner.observe(torch.from_numpy(x).permute(0, 3, 1, 2), torch.zeros(frames, dtype=torch.long))
else:
    check_samples(torch.from_numpy(x).permute(0, 3, 1, 2), "it")
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "dtype"),
    [("predict", "uint8"), ("predict", "float64"), ("statistics", "uint8"), ("check", "float32")],
)
def test_the_peak_is_the_input_and_a_bounded_amount(task: str, dtype: str) -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT, task, dtype], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < BOUND
