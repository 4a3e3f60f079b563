"""Certificates for the transport tests, and a check that nothing is left running."""

import threading

import pytest
from tls_parties import Parties


@pytest.fixture
def parties(tmp_path):
    return Parties.make(tmp_path / "identities")


@pytest.fixture(autouse=True)
def _no_thread_is_left():
    before = set(threading.enumerate())
    yield
    left = [thread.name for thread in threading.enumerate() if thread not in before]
    assert left == []
