"""Imported by the process that servers are forked from: all that the first fit of a process imports and computes."""

import os

import torch

import onebyone.serve.server  # noqa: F401
from onebyone.serve.settings import Settings, check_usable

if "WARM_SERVER" in os.environ:  # not where tests are collected
    torch.set_num_threads(1)
    check_usable(Settings(memory=os.environ["WARM_SERVER"]))
