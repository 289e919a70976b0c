"""Keras is loaded on one backend for a whole process: here on torch, whose models are then modules of torch as well."""

import os

os.environ["KERAS_BACKEND"] = "torch"
