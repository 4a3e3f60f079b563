"""What goes wrong between two organisations: each ends soon, on both sides, with a message."""

import dataclasses
import datetime as dt
import signal
import socket
import time

import pytest

from colonnade.errors import PeerAbortedError, PeerError, TransportError, UsageError
from colonnade.party import feature_run, label_run, session
from colonnade.party import serve as serve_module
from colonnade.party.certificates import make_identity, renew_certificate
from colonnade.party.messages import Finished, TrainProposal, Verdict
from colonnade.party.session import PeerLeftError, open_channel, say_hello
from colonnade.protocol.agreement import KeyChoice, Resources
from colonnade.protocol.matmul_messages import Derivatives, MaskedGradient, WeightsPublished
from colonnade.protocol.psi import dh
from colonnade.protocol.psi.messages import Points
from colonnade.ring import Streams
from colonnade.transport import memory_pair
from colonnade.wire import Abort, RecordingChannel, encode_frame, runner
from party_runs import BANK, HOST, SHOP, KeepingReporter, Proxy, Workplace, free_port, to_toml

NOW = dt.datetime.now(dt.UTC)
DAY = dt.timedelta(days=1)


@pytest.fixture
def work(tmp_path):
    return Workplace.make(tmp_path)


def failed_run(work, party):
    """The text of the one failed run; nothing may pass for finished or be left half-written."""
    assert work.runs(party) == []
    assert work.runs(party, "partial") == []
    (folder,) = work.runs(party, "failed")
    return (folder / "error.txt").read_text()


# -- who is not there, or is not who is pinned ---------------------------------------------------


@pytest.mark.parametrize("listens", [True, False])
def test_a_label_party_alone_gives_up_soon(tmp_path, listens):
    work = Workplace.make(tmp_path, label_listens=listens)
    work.tables[BANK]["limits"]["connect_s"] = 0.5
    start = time.monotonic()
    with pytest.raises(TransportError) as caught:
        work.train_here(KeepingReporter(), None)
    assert time.monotonic() - start < 5
    port = work.tables[BANK]["connection"]["port"]
    assert f"{HOST}:{port}" in str(caught.value)
    assert work.runs(BANK, "failed") == []


def test_a_port_where_something_else_answers(work):
    with socket.create_server((HOST, 0)) as stranger:
        stranger.listen()
        work.tables[BANK]["connection"]["port"] = stranger.getsockname()[1]
        work.tables[BANK]["limits"]["connect_s"] = 1.0
        work.tables[BANK]["limits"]["dead_after_s"] = 1.0
        with pytest.raises(TransportError, match=str(stranger.getsockname()[1])):
            work.train_here(KeepingReporter(), None)


def replace_identity(work, party, **validity):
    folder = work.folder / party / "identity"
    for path in folder.iterdir():
        path.unlink()
    make_identity(party, folder, **validity)


def expired(work, party):
    replace_identity(work, party, not_before=NOW - 9 * DAY, not_after=NOW - DAY)
    work.pin(party, at=SHOP if party == BANK else BANK)
    return "expired"


def not_yet_valid(work, party):
    replace_identity(work, party, not_before=NOW + DAY, not_after=NOW + 9 * DAY)
    work.pin(party, at=SHOP if party == BANK else BANK)
    return "not valid before|not yet valid|becomes valid|valid from"


def not_the_pinned_one(work, party):
    replace_identity(work, party)
    return "pin|fingerprint|certificate"


@pytest.mark.parametrize("party", [BANK, SHOP])
@pytest.mark.parametrize("spoil", [expired, not_yet_valid, not_the_pinned_one])
def test_a_wrong_certificate_is_refused_and_both_sides_say_so(work, spoil, party):
    pattern = spoil(work, party)
    for name in (BANK, SHOP):
        work.tables[name]["limits"]["connect_s"] = 1.0
    outcome = work.train()
    assert isinstance(outcome.label, TransportError | PeerError)
    assert isinstance(outcome.feature, TransportError)
    for error in (outcome.label, outcome.feature):
        assert "certificate" in str(error), str(error)
    said = f"{outcome.label} {outcome.feature}"
    assert any(word in said for word in pattern.split("|")), said
    assert work.runs(BANK, "failed") == work.runs(SHOP, "failed") == []


# -- what does not fit together ------------------------------------------------------------------


def test_another_protocol_version_is_named_on_both_sides(work):
    newer = "import colonnade.wire.hello as hello; hello.PROTOCOL_VERSION = '999'"
    with work.start(SHOP, "serve", "--jobs", "1", wrapper=newer) as serve:
        with pytest.raises(PeerError, match=r"protocol: '1' here, '999' there.*both sides"):
            work.train_here(KeepingReporter(), None)
        assert serve.wait() == 1
        assert "protocol: '999' here, '1' there" in serve.output


def test_other_key_sizes_are_named_on_both_sides(work):
    work.tables[SHOP]["keys"] = {"insecure_bits": 768}
    outcome = work.train()
    assert "key_bits: '512' here, '768' there" in outcome.label_text
    assert "key_bits: '768' here, '512' there" in outcome.feature_text
    assert outcome.feature == 1


def test_a_job_that_differs_from_the_agreed_file_is_refused_with_every_difference(work):
    agreed = work.job | {"epochs": 3, "learning_rate": 0.1}
    work.text(SHOP, to_toml(agreed), "agreed.toml")
    work.tables[SHOP]["approval"]["job"] = "agreed.toml"
    outcome = work.train()
    assert isinstance(outcome.label, PeerError)
    assert "job.epochs: '2' here, '3' there; " in outcome.label_text
    assert "job.learning_rate: '0.2' here, '0.1' there" in outcome.label_text
    assert "job.epochs: '3' here, '2' there; " in outcome.feature_text
    assert "job.learning_rate: '0.1' here, '0.2' there" in outcome.feature_text
    for text in (outcome.label_text, outcome.feature_text):
        assert "job: '" in text
        assert "momentum" not in text
        assert "seed" not in text


def test_a_proposal_that_is_not_the_job_of_the_hello_is_refused(work, monkeypatch):
    def other(message):
        fields = {name: getattr(message, name) for name in message.__struct_fields__}
        job = dataclasses.replace(work.loaded_job(), epochs=3).to_wire()
        return TrainProposal(**(fields | {"job": job}))

    work.text(SHOP, to_toml(work.job), "agreed.toml")
    work.tables[SHOP]["approval"]["job"] = "agreed.toml"
    tamper(monkeypatch, label_run, TrainProposal, other)
    outcome = work.train()
    for text in (outcome.label_text, outcome.feature_text):
        assert "epochs: got 3, want 2" in text


def test_certificates_other_than_those_pinned_are_named_on_both_sides(work, monkeypatch):
    # The connection stands on the old certificates; the bank's file has been renewed since.
    connect = session.connect

    def connect_then_renew(*arguments):
        channel = connect(*arguments)
        renew_certificate(arguments[1])
        return channel

    monkeypatch.setattr(session, "connect", connect_then_renew)
    outcome = work.train()
    assert "certificate here and peer_certificate there: " in outcome.label_text
    assert "peer_certificate here and certificate there: " in outcome.feature_text
    for text in (outcome.label_text, outcome.feature_text):
        assert "key_bits" not in text


@pytest.mark.parametrize(
    ("kind", "left"), [("Stopped", True), ("UsageError", False), ("the other side stopped", False)]
)
def test_who_leaves_before_its_hello_is_told_by_kind_and_not_by_text(work, kind, left):
    label, feature = memory_pair(BANK, SHOP, timeout_s=5)
    label.send(Abort(kind=kind, reason="the other side stopped (Stopped): no"))
    with pytest.raises(PeerAbortedError) as caught:
        say_hello(feature, work.config(SHOP), 512)
    assert isinstance(caught.value, PeerLeftError) == left


def test_an_agreed_job_says_nothing_about_predictions(work, tmp_path):
    work.text(SHOP, to_toml(work.job), "agreed.toml")
    work.tables[SHOP]["approval"]["job"] = "agreed.toml"
    assert work.train().succeeded
    data = work.folder / BANK / "data.csv"
    assert work.predict(work.models(BANK)[0], data, tmp_path / "scores.csv").succeeded


def test_the_agreed_job_runs(work):
    work.text(SHOP, to_toml(work.job), "agreed.toml")
    work.tables[SHOP]["approval"]["job"] = "agreed.toml"
    assert work.train().succeeded


def test_a_broken_agreed_file_is_this_sides_affair(work):
    work.text(SHOP, "epochs = [", "agreed.toml")
    work.tables[SHOP]["approval"]["job"] = "agreed.toml"
    outcome = work.train()
    assert "agreed.toml" in outcome.feature_text
    assert isinstance(outcome.label, PeerError)
    assert "agreed.toml" not in outcome.label_text


# -- who stops, dies or is cut off in the middle --------------------------------------------------


def at_step(count, act):
    """A reporter that acts once when `count` training calls are done."""
    reporter, acted = KeepingReporter(), []

    def on_progress(step, done):
        if step == "train" and done >= count and not acted:
            acted.append(True)
            act()

    reporter.on_progress = on_progress
    return reporter


def test_a_feature_party_killed_in_the_middle_leaves_nothing_that_looks_finished(work):
    work.job["epochs"] = 5
    work.tables[BANK]["limits"]["reconnect_s"] = 1.0
    with work.start(SHOP, "serve") as serve:
        reporter = at_step(4, serve.process.kill)
        with pytest.raises(TransportError, match=r"'shop' is gone.*start again"):
            work.train_here(reporter, None)
        assert serve.wait() == -signal.SIGKILL
    assert "'shop' is gone" in failed_run(work, BANK)
    assert work.runs(SHOP) == []
    assert len(work.runs(SHOP, "partial")) == 1
    # What the killed run gave away is not forgotten.
    work.tables[SHOP]["approval"]["max_outputs_per_row"] = 9
    outcome = work.train()
    assert "outputs per row would reach 10, with 5 from earlier jobs" in str(outcome.label)
    assert "outputs per row would reach 10" in outcome.feature_text


def test_a_label_party_killed_in_the_middle_ends_the_job_and_not_the_service(work):
    work.job["epochs"] = 50
    work.tables[SHOP]["limits"]["reconnect_s"] = 1.0

    def killed_then_another(reporter, console):
        with work.start(BANK, "train", "job.toml", "--progress", "json") as train:
            train.wait_for('"step": "train", "done": 3')
            train.process.kill()
            train.wait()
        work.job["epochs"] = 1
        return work.train_here(reporter, console)

    outcome = work.together(killed_then_another, jobs=2)
    assert outcome.feature == 1
    assert "job failed: 'bank' is gone" in outcome.feature_text
    assert "'bank' is gone" in (work.runs(SHOP, "failed")[0] / "error.txt").read_text()
    assert [path.name for path in work.runs(SHOP)] == [outcome.label.name]


def test_a_service_that_is_told_to_stop_tells_the_label_party(work):
    work.job["epochs"] = 50
    with work.start(SHOP, "serve") as serve:
        reporter = at_step(3, lambda: serve.signal(signal.SIGTERM))
        with pytest.raises(PeerError, match="'shop' was stopped by its operator"):
            work.train_here(reporter, None)
        assert serve.wait(15) == 130
    assert "stopped by its operator" in failed_run(work, BANK)
    assert failed_run(work, SHOP) == "stopped by the operator\n"


def interrupt():
    raise KeyboardInterrupt


def test_a_label_party_that_is_stopped_tells_the_service(work):
    outcome = work.train(label_reporter=at_step(3, interrupt))
    assert isinstance(outcome.label, KeyboardInterrupt)
    assert "'bank' was stopped by its operator" in outcome.feature_text
    assert "'bank' was stopped by its operator" in failed_run(work, SHOP)
    failed_run(work, BANK)


def broken_inside():
    raise ZeroDivisionError("rows of p017")


def test_of_an_internal_error_the_other_side_learns_only_that_there_was_one(work):
    outcome = work.train(label_reporter=at_step(3, broken_inside))
    assert isinstance(outcome.label, ZeroDivisionError)
    assert "internal error at 'bank'; see its log" in outcome.feature_text
    assert "p017" not in outcome.feature_text
    assert "p017" in failed_run(work, BANK)


def reproducible(monkeypatch):
    """The same secrets, row order and run name in every run, so that results can be compared."""

    def seeded(config, job):
        streams = Streams.from_seed_for_tests(config.name)
        return Resources(streams, KeyChoice(job.key_bits, job.insecure_key_bits), 1)

    for module in (label_run, feature_run):
        monkeypatch.setattr(module, "resources", seeded)
    monkeypatch.setattr(label_run, "new_run_id", lambda name: "same-run")
    monkeypatch.setattr(dh, "random_scalar", lambda: bytes([5]) + bytes(31))


def test_a_connection_that_breaks_again_and_again_changes_nothing(tmp_path, monkeypatch):
    reproducible(monkeypatch)
    shares = []
    for name in ("straight", "cut"):
        work = Workplace.make(tmp_path / name)
        work.job |= {"epochs": 4, "seed": "5a" * 32}
        if name == "straight":
            outcome = work.train()
        else:
            port = work.tables[SHOP]["connection"]["port"]
            with Proxy(port, cut_after=12_000) as proxy:
                work.tables[BANK]["connection"]["port"] = proxy.port
                outcome = work.train()
            assert proxy.cuts >= 3
        assert outcome.succeeded, outcome.label_text + outcome.feature_text
        runs = [work.runs(party)[0] for party in (BANK, SHOP)]
        history = (runs[0] / "history.json").read_bytes()
        tensors = [label_run_shares(run) for run in runs]
        shares.append((history, tensors))
    assert shares[0] == shares[1]


def label_run_shares(run):
    """The bytes of all tensors; the pair digest beside them holds fresh nonces."""
    from safetensors.numpy import load_file

    return {name: tensor.tobytes() for name, tensor in load_file(run / "share.safetensors").items()}


# -- a peer that sends what it must not -----------------------------------------------------------


class Tampering(RecordingChannel):
    """Replaces one kind of outgoing message."""

    def __init__(self, inner, kind, change):
        super().__init__(inner)
        self._kind, self._change = kind, change

    def send(self, message):
        if isinstance(message, self._kind):
            message = self._change(message)
        if isinstance(message, bytes):
            self.inner._link.send(message, 5.0)
        else:
            self.inner.send(message)


def tamper(monkeypatch, module, kind, change):
    def run_role(channel, role):
        return runner.run_role(Tampering(channel, kind, change), role)

    monkeypatch.setattr(module, "run_role", run_role)


def payload_of(kind, byte):
    def change(message):
        fields = {name: getattr(message, name) for name in message.__struct_fields__}
        return kind(**(fields | {"payload": bytes([byte]) * len(message.payload)}))

    return change


def cut_in_half(message):
    frame = encode_frame(message)
    return frame[: len(frame) // 2]


@pytest.mark.parametrize(
    ("kind", "change", "pattern"),
    [
        (WeightsPublished, payload_of(WeightsPublished, 255), "ciphertext"),
        (Derivatives, payload_of(Derivatives, 0), "ciphertext"),
        (Derivatives, cut_in_half, "malformed"),
        (Points, lambda message: Points(points=b"\xff" * len(message.points)), "element|point"),
        (Points, lambda message: Finished(nonce=bytes(32)), "want psi.points"),
        (TrainProposal, cut_in_half, "malformed"),
        (TrainProposal, lambda message: b"\xff\xffnonsense", "message"),
    ],
)
def test_what_a_label_party_must_not_send_ends_the_job_on_both_sides(
    work, monkeypatch, kind, change, pattern
):
    tamper(monkeypatch, label_run, kind, change)
    start = time.monotonic()
    outcome = work.train()
    assert time.monotonic() - start < 10
    assert outcome.feature == 1
    assert isinstance(outcome.label, PeerError)
    assert any(word in outcome.feature_text for word in pattern.split("|")), outcome.feature_text
    assert "the other side stopped (PeerError)" in str(outcome.label)
    assert work.runs(SHOP) == work.runs(BANK) == []


@pytest.mark.parametrize("byte", [0, 255])
def test_ciphertexts_out_of_range_from_a_feature_party(work, monkeypatch, byte):
    def change(message):
        return MaskedGradient(call=message.call, payload=bytes([byte]) * len(message.payload))

    tamper(monkeypatch, feature_run, MaskedGradient, change)
    outcome = work.train()
    assert isinstance(outcome.label, PeerError)
    assert "ciphertext" in str(outcome.label)
    assert "ciphertext" in failed_run(work, SHOP)
    assert "ciphertext" in failed_run(work, BANK)


def test_a_message_longer_than_this_side_takes(work):
    work.tables[SHOP]["limits"]["max_message_bytes"] = 1500
    outcome = work.train()
    assert outcome.feature == 1
    assert isinstance(outcome.label, PeerError)
    for text in (outcome.label_text, outcome.feature_text):
        assert "1500" in text
    assert "PeerError" in failed_run(work, SHOP)


@pytest.mark.parametrize(
    "change",
    [
        {"rows": -1},
        {"columns": 1 << 40},
        {"run": "../../outside"},
        {"run": "x" * 200},
    ],
)
def test_a_proposal_out_of_bounds_is_refused_before_anything_is_made_of_it(work, change):
    def label(reporter, console):
        config, job = work.config(BANK), work.loaded_job()
        with open_channel(config, SHOP, reporter) as channel:
            say_hello(channel, config, 512)
            fields = {"run": "r", "job": job.to_wire(), "rows": 60, "columns": 2, "dry_run": False}
            channel.send(TrainProposal(**(fields | change)))
            channel.receive(Finished)

    outcome = work.together(label)
    assert "malformed party.train/1" in outcome.feature_text
    assert "malformed party.train/1" in str(outcome.label)
    assert not (work.folder / SHOP / "runs").exists()


def test_more_ids_than_were_proposed_are_not_aligned(work, monkeypatch):
    def fewer(message):
        fields = {name: getattr(message, name) for name in message.__struct_fields__}
        return TrainProposal(**(fields | {"rows": 10}))

    work.tables[SHOP]["approval"]["max_rows"] = 20
    tamper(monkeypatch, label_run, TrainProposal, fewer)
    outcome = work.train()
    assert "'bank' announces 63 ids; want at most 10" in outcome.feature_text
    assert "announces 63 ids" in str(outcome.label)


def test_other_label_columns_than_approved_are_refused(work, monkeypatch):
    def none(message):
        fields = {name: getattr(message, name) for name in message.__struct_fields__}
        return TrainProposal(**(fields | {"columns": 4}))

    tamper(monkeypatch, label_run, TrainProposal, none)
    outcome = work.train()
    assert "has 2 feature columns; 4 were approved" in outcome.feature_text
    assert "4 were approved" in str(outcome.label)


def test_a_service_outlives_a_failed_job(work):
    def bad_then_good(reporter, console):
        work.job["epochs"] = 200
        with pytest.raises(PeerError, match="max_epochs is 100"):
            work.train_here(reporter, console)
        work.job["epochs"] = 1
        return work.train_here(reporter, console)

    outcome = work.together(bad_then_good, jobs=2)
    assert outcome.feature == 1
    assert len(work.runs(BANK)) == len(work.runs(SHOP)) == 1


def test_a_service_outlives_an_error_of_the_program(work, monkeypatch):
    handle = serve_module.handle_session
    broken = [ZeroDivisionError("rows of p017")]

    def breaks_once(channel, *rest):
        if broken:
            raise broken.pop()
        return handle(channel, *rest)

    def bad_then_good(reporter, console):
        with pytest.raises((PeerError, TransportError)):
            work.train_here(reporter, console)
        return work.train_here(reporter, console)

    monkeypatch.setattr(serve_module, "handle_session", breaks_once)
    outcome = work.together(bad_then_good, jobs=2)
    assert outcome.feature == 1
    assert "job failed: internal error (ZeroDivisionError)" in outcome.feature_text
    assert "Traceback" in outcome.feature_screen.getvalue()
    assert "p017" not in outcome.label_text
    assert len(work.runs(SHOP)) == 1


def test_a_run_folder_that_cannot_be_made_fails_the_job_and_its_path_stays_here(work):
    work.text(SHOP, "a file", "elsewhere")
    work.tables[SHOP]["run"]["folder"] = "elsewhere/runs"
    outcome = work.train()
    assert outcome.feature == 1
    assert f"cannot read or write {work.folder}" in outcome.feature_text
    assert "'shop' could not use a file of its own; see its log" in str(outcome.label)
    assert str(work.folder / SHOP) not in outcome.label_text


@pytest.mark.parametrize("act", ["refuse", "warn", "abort"])
def test_nobody_writes_lines_into_the_other_sides_log(work, monkeypatch, act):
    forged = "fine\n2031-01-01 'shop' approved everything\x1b]0;title\x07" + 3000 * "x"

    def feature(session):
        say_hello(session.channel, session.config, 512)
        session.channel.receive(TrainProposal)
        if act == "abort":
            raise PeerError(forged)
        verdict = Verdict.refusal("")
        fields = {name: getattr(verdict, name) for name in verdict.__struct_fields__}
        change = {"reason": forged} if act == "refuse" else {"accepted": True, "warnings": [forged]}
        session.channel.send(Verdict(**(fields | change)))
        raise UsageError("enough")

    monkeypatch.setattr(feature_run, "_serve", feature)
    outcome = work.train()
    assert isinstance(outcome.label, PeerError)
    lines = [*outcome.label_reporter.notes, str(outcome.label)]
    lines += outcome.label_reporter.transcript
    for line in lines:
        assert len(line) < 2200
    for line in [*outcome.label_reporter.transcript, str(outcome.label)]:
        assert line.isprintable()
        assert not line.startswith("2031")


def test_the_feature_party_does_not_wait_for_the_baseline(work, monkeypatch):
    fit, seen = label_run.fit_plain, []

    def slow(*arguments):
        deadline = time.monotonic() + 8
        while not work.runs(SHOP) and time.monotonic() < deadline:
            time.sleep(0.05)
        seen.append((len(work.runs(SHOP)), len(work.runs(BANK, "partial"))))
        return fit(*arguments)

    monkeypatch.setattr(label_run, "fit_plain", slow)
    assert work.train().succeeded
    assert seen == [(1, 1)]


def test_only_the_right_role_starts_each_command(work):
    config = work.config(SHOP)
    with pytest.raises(UsageError, match="feature party; it takes part with 'colonnade serve'"):
        label_run.train(config, work.loaded_job(), KeepingReporter(), None)


def test_a_port_that_is_taken(work):
    port = free_port()
    work.tables[SHOP]["connection"]["port"] = port
    with socket.create_server((HOST, port)):
        outcome = work.together(lambda reporter, console: None)
    assert isinstance(outcome.feature, TransportError)
    assert str(port) in str(outcome.feature)
