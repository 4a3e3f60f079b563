"""Channels between parties: an in-memory pair, and TCP with mutual TLS and pinned certificates."""

from colonnade.transport.identity import Certificate, Identity, PinnedPeer, read_certificate
from colonnade.transport.limits import TransportLimits
from colonnade.transport.listener import Listener
from colonnade.transport.memory import MemoryChannel, memory_pair
from colonnade.transport.session import TlsChannel, connect

__all__ = [
    "Certificate",
    "Identity",
    "Listener",
    "MemoryChannel",
    "PinnedPeer",
    "TlsChannel",
    "TransportLimits",
    "connect",
    "memory_pair",
    "read_certificate",
]
