"""A live stream: new classes, and blurry boundaries.

Every sample is predicted before it is learnt.
"""

from onebyone import OnlineClassifier, blurry, load
from onebyone.evaluation import evaluate_stream

data = load("digits")
# 30 % of the samples arrive during another class.
stream = blurry(data.train_y, data.num_classes, share=0.3)

for method in ("finetune", "er", "ccp", "auto"):
    clf = OnlineClassifier(method, memory=200)
    found = evaluate_stream(clf, stream, data, window=300)
    overall = 100 * found.accuracy
    recent = 100 * found.recent[-1]
    print(
        f"{method:<9} {overall:.1f} % right at first sight,",
        f"{recent:.1f} % of the last 300",
    )
