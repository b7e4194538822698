"""Data that are read during training: sources, the order of their rows, and a thread that reads ahead."""

from inducing.streams.stream import Stream as Stream
