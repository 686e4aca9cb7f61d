"""Export: what was learnt as an ONNX file, for a runtime without torch."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnxruntime

import onebyone

data = onebyone.load("digits")
names = np.array([f"digit {label}" for label in range(10)])
clf = onebyone.OnlineClassifier(memory=200)
for label in range(10):
    x = data.train_x[data.train_y == label]
    clf.partial_fit(x, [names[label]] * len(x))

with TemporaryDirectory() as folder:
    path = Path(folder) / "digits.onnx"
    clf.export(path)
    session = onnxruntime.InferenceSession(path)

images = data.test_x.numpy()
probabilities, typicality = session.run(
    ["probabilities", "typicality"], {"samples": images}
)
texts = session.get_modelmeta().custom_metadata_map
classes = np.array(json.loads(texts["classes"]))
threshold = json.loads(texts["unknown_threshold"])
right = (classes[probabilities.argmax(1)] == names[data.test_y]).mean()
difference = np.abs(probabilities - clf.predict_proba(images)).max()
same = difference < 1e-4
print(
    f"accuracy {100 * right:.1f} % in onnxruntime; probabilities within 0.0001: {same}"
)
