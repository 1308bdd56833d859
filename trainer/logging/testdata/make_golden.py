#!/usr/bin/env python3
"""Writes golden.tfevents with TensorBoard's own protocol buffers and record writer.

event_message_test compares Gantry's bytes with it. Needs the Python package tensorboard.
"""
import pathlib

from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2, tensor_shape_pb2, types_pb2
from tensorboard.summary.writer.record_writer import RecordWriter


def text(tag, content):
    plugin = summary_pb2.SummaryMetadata.PluginData(plugin_name="text")
    shape = tensor_shape_pb2.TensorShapeProto(dim=[tensor_shape_pb2.TensorShapeProto.Dim(size=1)])
    return summary_pb2.Summary.Value(
        tag=tag,
        metadata=summary_pb2.SummaryMetadata(plugin_data=plugin),
        tensor=tensor_pb2.TensorProto(
            dtype=types_pb2.DT_STRING, tensor_shape=shape, string_val=[content.encode()]
        ),
    )


def scalars(**values):
    return summary_pb2.Summary(
        value=[summary_pb2.Summary.Value(tag=t, simple_value=v) for t, v in values.items()]
    )


START = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
EVENTS = [
    event_pb2.Event(wall_time=1.75, file_version="brain.Event:2"),
    event_pb2.Event(wall_time=2.5, step=3, session_log=START),
    event_pb2.Event(wall_time=3.25, step=3, summary=scalars(**{"train/loss": 5.5, "zero": 0.0})),
    event_pb2.Event(wall_time=1e9 + 0.5, step=300, summary=scalars(nan=float("nan"), tiny=1e-45)),
    event_pb2.Event(
        wall_time=4.0,
        step=2**40,
        summary=summary_pb2.Summary(value=[text("settings", "größe: 1\n" + 200 * "x")]),
    ),
    event_pb2.Event(wall_time=5.0, step=1, summary=summary_pb2.Summary()),
]

with open(pathlib.Path(__file__).parent / "golden.tfevents", "wb") as file:
    writer = RecordWriter(file)
    for event in EVENTS:
        writer.write(event.SerializeToString(deterministic=True))
