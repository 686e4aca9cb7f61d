"""Exact parallel fits: workers teach copies of a classifier, each with some of the samples, and the copies are merged.

Statistics are sums, so the merged classifier is the one that a single process would have, had it been given all
samples. Which samples are added up together depends on the shards alone, so the number of workers does not change a
bit of the result, and neither does a worker that dies and whose samples are learnt again by another.
"""

from onebyone.distributed.fitting import fit, learn_folder

__all__ = ["fit", "learn_folder"]
