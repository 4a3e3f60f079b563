"""What lands in a log or a traceback: objects of this package show no data, id or share."""

import dataclasses
import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any

import pytest

from colonnade import party, transport, wire
from colonnade.party.model import load_model
from colonnade.party.source import Source, load_source
from party_runs import BANK, SHOP, Workplace

# Types, as annotations spell them, whose values are records, ids or shares.
HOLDS_DATA = ("NDArray", "Table", "Features", "FixedMatrix", "bytes", "Preprocessor")


def data_classes() -> Iterator[type[Any]]:
    for package in (party, transport, wire):
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            loaded = importlib.import_module(module.name)
            for kind in vars(loaded).values():
                own = isinstance(kind, type) and kind.__module__ == module.name
                if own and dataclasses.is_dataclass(kind) and kind.__dataclass_params__.repr:
                    yield kind


def shown_data(kind: type[Any]) -> list[str]:
    """Fields of a data class that its repr shows and that hold data."""
    return [
        field.name
        for field in dataclasses.fields(kind)
        if field.repr and any(word in str(field.type) for word in HOLDS_DATA)
    ]


# Random or public by construction: a session id, bytes on their way through TLS.
EXEMPT = {"Opening", "Frame"}


@pytest.mark.parametrize("kind", sorted(set(data_classes()), key=str), ids=lambda k: k.__name__)
def test_no_data_class_shows_data(kind):
    assert kind.__name__ in EXEMPT or shown_data(kind) == []


def test_control_a_field_that_shows_data_is_found():
    @dataclasses.dataclass
    class Careless:
        ids: "list[bytes]"
        size: int

    assert shown_data(Careless) == ["ids"]
    assert Source in set(data_classes())


def test_a_source_and_a_model_show_neither_ids_nor_values_nor_shares(tmp_path):
    work = Workplace.make(tmp_path)
    assert work.train().succeeded
    text = repr(load_source(work.config(BANK).data, with_labels=True))
    text += repr(load_model(work.models(BANK)[0], "label"))
    text += repr(load_model(work.models(SHOP)[0], "feature"))
    for word in ("p000", "array", "dtype", "uint64", "shape"):
        assert word not in text
    assert len(text) < 6000
