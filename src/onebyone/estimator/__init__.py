"""The same learners for people who have a stream instead of a benchmark."""

from onebyone.estimator.classifier import OnlineClassifier

__all__ = ["OnlineClassifier"]
