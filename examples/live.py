"""A live stream: classes that were not announced, and blurry boundaries.

Every sample is predicted before it is learnt.
"""

import onebyone
from onebyone.evaluation import evaluate_stream

data = onebyone.load("digits")
# 30 % of the samples arrive during another class.
stream = onebyone.blurry(data.train_y, data.num_classes, share=0.3)

for method in ("finetune", "er", "ccp", "auto"):
    clf = onebyone.OnlineClassifier(method, memory=200)
    found = evaluate_stream(clf, stream, data, window=300)
    overall, at_the_end = 100 * found.accuracy, 100 * found.recent[-1]
    shares = f"{overall:.1f} % right at first sight, {at_the_end:.1f} % of the last 300"
    print(f"{method:<10} {shares}")
