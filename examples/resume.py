"""Resume after a crash: a process that learns is killed, and another one continues."""

import os
import signal
import subprocess
import sys
from tempfile import TemporaryDirectory

import numpy as np

import onebyone

data = onebyone.load("digits")
batches = onebyone.class_incremental(data.train_y, data.num_classes)
stream = [int(i) for index in batches for i in index]


def learn(
    clf: onebyone.OnlineClassifier, first: int = 0, last: int = len(stream)
) -> onebyone.OnlineClassifier:
    """Learn these samples of the stream, ten at a time."""
    for start in range(first, last, 10):
        index = stream[start : min(start + 10, last)]
        clf.partial_fit(data.train_x[index], data.train_y[index])
    return clf


if sys.argv[1:]:  # the process that is killed
    clf = learn(
        onebyone.OnlineClassifier(memory=200, autosave=sys.argv[1], every=100), last=750
    )
    os.kill(os.getpid(), signal.SIGKILL)

with TemporaryDirectory() as folder:
    killed = subprocess.run([sys.executable, __file__, folder])
    clf = onebyone.OnlineClassifier.load(folder)
    lost = 750 - clf.n_samples_seen_
    print(f"killed by signal {-killed.returncode} after 750 samples")
    print(f"at most 100 of them are lost: {lost <= 100}")
    learn(clf, first=clf.n_samples_seen_)

uninterrupted = learn(onebyone.OnlineClassifier(memory=200))
same = np.array_equal(
    clf.predict_proba(data.test_x), uninterrupted.predict_proba(data.test_x)
)
print(f"accuracy {100 * clf.score(data.test_x, data.test_y):.1f} %")
print(f"the same bits as an uninterrupted one: {same}")
