"""The learners of this library as a scikit-learn estimator."""

from onebyone.estimator.classifier import OnlineClassifier

__all__ = ["OnlineClassifier"]
