"""Resume after a crash.

A process that learns is killed, and another one continues.
"""

import os
import signal
import subprocess
import sys
from tempfile import TemporaryDirectory

import numpy as np

from onebyone import OnlineClassifier, class_incremental, load

data = load("digits")
batches = class_incremental(data.train_y, data.num_classes)
stream = [int(i) for index in batches for i in index]


def learn(clf: OnlineClassifier, samples: list[int]) -> None:
    """Learn these samples, ten at a time."""
    for start in range(0, len(samples), 10):
        index = samples[start : start + 10]
        clf.partial_fit(data.train_x[index], data.train_y[index])


if sys.argv[1:]:  # the process that is killed
    folder = sys.argv[1]
    clf = OnlineClassifier(memory=200, autosave=folder, every=100)
    learn(clf, stream[:750])
    os.kill(os.getpid(), signal.SIGKILL)

with TemporaryDirectory() as folder:
    killed = subprocess.run([sys.executable, __file__, folder])
    number = -killed.returncode
    print(f"killed by signal {number} after 750 samples")

    clf = OnlineClassifier.load(folder)
    position = clf.n_samples_seen_
    print(f"at most 100 of them are lost: {position >= 650}")
    learn(clf, stream[position:])

uninterrupted = OnlineClassifier(memory=200)
learn(uninterrupted, stream)
percent = 100 * clf.score(data.test_x, data.test_y)
print(f"accuracy {percent:.1f} %")
expected = uninterrupted.predict_proba(data.test_x)
same = np.array_equal(clf.predict_proba(data.test_x), expected)
print(f"the same bits as an uninterrupted one: {same}")
