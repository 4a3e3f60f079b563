"""The hello: what must agree, what must mirror, what is only shown."""

import threading

import pytest

from colonnade.errors import PeerError, UsageError
from colonnade.transport import memory_pair
from colonnade.wire.hello import ANY, PROTOCOL_VERSION, Hello, exchange_hello

LABEL = {"role": "label", "software": "1.0", "key_bits": "2048"}
FEATURE = {"role": "feature", "software": "1.1", "key_bits": "2048"}


def exchange(ours, theirs, names=("label", "feature")):
    """Return what `exchange_hello` gave or raised on each side."""
    results = [None, None]
    pair = memory_pair(*names, timeout_s=5)

    def run(index, fields):
        try:
            results[index] = exchange_hello(pair[index], fields)
        except PeerError as error:
            results[index] = error

    threads = [threading.Thread(target=run, args=args) for args in enumerate((ours, theirs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_agreement_returns_the_peers_fields():
    ours, theirs = exchange(LABEL, FEATURE)
    assert ours == {**FEATURE, "protocol": PROTOCOL_VERSION, "party": "feature", "peer": "label"}
    assert theirs == {**LABEL, "protocol": PROTOCOL_VERSION, "party": "label", "peer": "feature"}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"protocol": "0"}, ["protocol: ", "'0'", f"'{PROTOCOL_VERSION}'"]),
        ({"key_bits": "3072"}, ["key_bits: ", "'2048'", "'3072'"]),
        ({"job": "abc"}, ["job: ", "(not stated)", "'abc'"]),
        ({"role": "label"}, ["role: ", "different roles"]),
        ({"party": "someone"}, ["party", "'someone'", "'feature'"]),
        ({"peer": "someone"}, ["peer", "'someone'", "'label'"]),
        ({"protocol": "0", "key_bits": "3072", "x": "y"}, ["protocol: ", "key_bits: ", "x: "]),
    ],
)
def test_every_difference_is_named_on_both_sides_with_both_values(change, named):
    for error in exchange(LABEL, {**FEATURE, **change}):
        assert isinstance(error, PeerError)
        for part in named:
            assert part in str(error)
        assert "software" not in str(error)


PINS = {"certificate": "AA 11", "peer_certificate": "BB 22"}


def test_certificates_are_each_others_mirror_image():
    mirrored = {"certificate": "BB 22", "peer_certificate": "AA 11"}
    ours, _ = exchange(LABEL | PINS, FEATURE | mirrored)
    assert ours["certificate"] == "BB 22"
    ours, theirs = exchange(LABEL | PINS, FEATURE | mirrored | {"certificate": "CC 33"})
    assert "peer_certificate here and certificate there: 'BB 22' here, 'CC 33' there" in str(ours)
    assert "certificate here and peer_certificate there: 'CC 33' here, 'BB 22' there" in str(theirs)
    assert "AA 11" not in str(ours) + str(theirs)


@pytest.mark.parametrize("swap", [False, True])
def test_a_job_is_compared_only_where_both_sides_agreed_on_one(swap):
    agreed = {"job": "abc", "job.epochs": "3"}
    sides = [LABEL | agreed, FEATURE | {"job": ANY}]
    if swap:
        sides = [LABEL | {"job": ANY}, FEATURE | agreed]
    assert all(isinstance(result, dict) for result in exchange(*sides))
    for error in exchange(LABEL | agreed, FEATURE | {"job": "abd", "job.epochs": "4"}):
        assert "job: 'ab" in str(error)
        assert "job.epochs: '" in str(error)


def test_only_the_job_is_negotiable():
    for error in exchange(LABEL, FEATURE | {"key_bits": ANY}):
        assert "key_bits" in str(error)


def test_a_long_value_is_shown_in_part():
    for error in exchange(LABEL, {**FEATURE, "key_bits": 1024 * "9"}):
        assert len(str(error)) < 500


def test_a_role_that_one_side_does_not_state_is_named():
    silent = {key: value for key, value in FEATURE.items() if key != "role"}
    assert all("role: " in str(error) for error in exchange(LABEL, silent))


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({f"k{index}": "" for index in range(65)}, "65 fields"),
        ({"k" * 65: ""}, "field name"),
        ({"": ""}, "field name"),
        ({"a\nb": ""}, "field name"),
        ({"k": "v" * 1025}, "1025 characters in field 'k'"),
    ],
)
def test_a_malformed_hello_is_refused(fields, what):
    label, feature = memory_pair(timeout_s=5)
    feature.send(Hello(fields=fields))
    with pytest.raises(PeerError, match=f"'feature' sent a malformed hello: .*{what}"):
        exchange_hello(label, LABEL)
    with pytest.raises(UsageError, match=what.replace("65 fields", "68 fields")):
        exchange_hello(feature, fields)


def test_control_characters_in_values_are_escaped():
    for error in exchange(LABEL, {**FEATURE, "key_bits": "\x1b[2J"}):
        assert "\x1b" not in str(error)
