"""Your own samples as arrays: two kinds of 16x16 pictures that arrive one kind after the other, then a result.

For pictures in folders, one folder a class: ``data = onebyone.load("folder", "path/to/pictures")``.
"""

import numpy as np

import onebyone
from onebyone.experiments import RunConfig, run

random = np.random.default_rng(0)
images = random.integers(0, 60, (400, 16, 16), dtype=np.uint8)
labels = np.repeat([0, 1], 200)
images[labels == 0, 4:12, :] += 150  # lying bars
images[labels == 1, :, 4:12] += 150  # standing bars

data = onebyone.from_arrays(images, labels, classes=["lying", "standing"])
result = run(RunConfig(method="ccp", memory_per_class=10), data=data)
print(f"accuracy {100 * result.accuracy:.1f} %, forgetting {100 * (result.forgetting or 0):.1f} %")
