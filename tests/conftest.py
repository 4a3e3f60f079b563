"""What all tests share. The modules beside this file can be imported from every test folder."""

import pytest

from colonnade.data.real import data_folder


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests of real data where COLONNADE_DATA names no folder."""
    if data_folder() is not None:
        return
    skip = pytest.mark.skip(reason="COLONNADE_DATA is not set")
    for item in items:
        if item.get_closest_marker("data") is not None:
            item.add_marker(skip)
