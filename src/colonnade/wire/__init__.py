"""Typed messages, their strict codec, and the channel that a protocol role talks through.

Nothing here opens a socket, starts a thread or reads a clock: a role is straight-line code over a
`Channel`, and `colonnade.transport` supplies one.
"""

from colonnade.wire.channel import Channel, Meter, OutboxRow, RecordingChannel
from colonnade.wire.messages import (
    Abort,
    Message,
    array_from_bytes,
    array_to_bytes,
    decode_frame,
    encode_frame,
    frame_tag,
    one_line,
)

__all__ = [
    "Abort",
    "Channel",
    "Message",
    "Meter",
    "OutboxRow",
    "RecordingChannel",
    "array_from_bytes",
    "array_to_bytes",
    "decode_frame",
    "encode_frame",
    "frame_tag",
    "one_line",
]
