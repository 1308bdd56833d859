#!/usr/bin/env python3
"""Prints what TensorBoard reads from a folder of event files, one line a value.

    read_events.py FOLDER            # tag, step, value

A development check: run it on what `gantry train --tensorboard_dir=FOLDER` wrote, before and after
a resume. Needs the Python package tensorboard.
"""
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

accumulator = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0, "tensors": 0})
accumulator.Reload()
for tag in accumulator.Tags()["scalars"]:
    for event in accumulator.Scalars(tag):
        print(f"{tag}\t{event.step}\t{event.value:.9g}")
for tag in accumulator.Tags()["tensors"]:
    for event in accumulator.Tensors(tag):
        print(f"{tag}\t{event.step}\t{event.tensor_proto.string_val[0].decode()!r}")
