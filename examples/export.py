"""Export to an ONNX file, for a runtime without torch."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnxruntime

from onebyone import OnlineClassifier, load

data = load("digits")
names = np.array([f"digit {label}" for label in range(10)])
clf = OnlineClassifier(memory=1000)
for label in range(10):
    x = data.train_x[data.train_y == label]
    clf.partial_fit(x, [names[label]] * len(x))

with TemporaryDirectory() as folder:
    path = Path(folder) / "digits.onnx"
    clf.export(path)
    session = onnxruntime.InferenceSession(path)

images = data.test_x.numpy()
outputs = ["probabilities", "typicality"]
answers = session.run(outputs, {"samples": images})
probabilities, typicality = answers

metadata = session.get_modelmeta().custom_metadata_map
classes = np.array(json.loads(metadata["classes"]))
threshold = json.loads(metadata["unknown_threshold"])
predicted = classes[probabilities.argmax(1)]
predicted[typicality < threshold] = "unknown"

percent = 100 * (predicted == names[data.test_y]).mean()
print(f"accuracy {percent:.1f} % in onnxruntime")
expected = clf.predict_proba(images)
same = np.abs(probabilities - expected).max() < 1e-4
print(f"probabilities within 0.0001: {same}")
