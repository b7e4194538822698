"""Data that are read while a model is trained on them: sources, their order, and the thread that reads ahead."""

from inducing.streams.stream import Stream as Stream
