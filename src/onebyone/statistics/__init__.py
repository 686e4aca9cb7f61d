"""Learners in closed form: sums of features, and a discriminant that these sums give."""
