"""Records of a training run: the right numbers, at the right steps, and the run itself undisturbed."""

import csv
import json
import types

import numpy as np
import pytest

import hardmax as hm
from hardmax.errors import NotPiecewiseAffineError, ParameterError, PrecisionError, ShapeError, WriteError
from hardmax.measure.dynamics import MODEL
from hardmax.networks.lookup import conditioned_lookup, lookup_examples, lookup_input, lookup_question

Probe, Recorder, snapshot = hm.dynamics.Probe, hm.dynamics.Recorder, hm.dynamics.snapshot


def _value(records, subject, quantity):
    (record,) = [r for r in records if (r.subject, r.quantity) == (subject, quantity)]
    return record.value


@pytest.fixture(scope="module")
def examples():
    return lookup_examples(30, rng=np.random.default_rng(3))


@pytest.fixture(scope="module")
def probes():
    context = lookup_input({0: 1, 2: 4, 3: 4, 5: 6, 7: 2}, asked=2)
    ask = [lookup_question(key) for key in (0, 2, 3)]

    def given(net):
        return conditioned_lookup(context, net)

    return (
        Probe("from k0 to k2", hm.Segment(ask[0], ask[1]), given),
        Probe("k0, k2, k3", hm.Plane.through(*ask), given),
        Probe("between contexts", hm.Segment(context, np.roll(context, 1, axis=0))),
    )


@pytest.fixture(scope="module")
def records(probes, examples):
    return snapshot(hm.builtin("lookup"), probes, step=7, inputs=examples.inputs, labels=examples.labels, queries=(-1,))


def test_cells_are_those_that_the_engine_counts(records, probes):
    hard = hm.builtin("lookup").with_temperature(0)
    for probe in probes:
        net = hard if probe.view is None else probe.view(hard)
        assert _value(records, probe.name, "cells") == hm.count_cells(net, probe.domain)
    assert {r.exactness for r in records if r.quantity == "cells"} == {"certified"}


def test_fidelity_is_that_of_the_same_inputs(records, examples):
    found = hm.fidelity.compare(hm.builtin("lookup"), examples.inputs, examples.labels)
    for name in ("agreement", "relative_error", "kl", "soft_accuracy", "hard_accuracy"):
        assert _value(records, MODEL, name) == getattr(found, name)
        (row,) = [r.row() for r in records if (r.subject, r.quantity) == (MODEL, name)]
        assert (row["low"], row["high"]) == found.interval(name)
    assert {r.exactness for r in records if r.subject == MODEL} == {"estimated"}


def test_margins_and_live_keys_agree_with_a_computation_by_hand(records, examples):
    """Scores from the conditioned network's own heads; live keys as corners of their hull, by scipy."""
    from scipy.spatial import ConvexHull

    soft = hm.builtin("lookup")
    margins, live = [], []
    for x in examples.inputs:
        given = conditioned_lookup(x, soft)
        head = given.layers[1].layers[0].heads[1]
        token = given.layers[0].weight @ x[-1] + given.layers[0].bias
        scores = np.sort(head.keys @ (head.query @ token + head.query_bias))
        margins.append(scores[-1] - scores[-2])
        live.append(len(ConvexHull(head.keys).vertices))
    assert _value(records, "layer 0 head 1", "margin_median") == pytest.approx(np.median(margins), rel=1e-9)
    assert _value(records, "layer 0 head 1", "margin_smallest") == pytest.approx(min(margins), rel=1e-9)
    assert _value(records, "layer 0 head 1", "live_keys") == np.mean(live)
    assert _value(records, "layer 0 head 1", "keys") == 5


def test_without_a_choice_of_queries_every_row_counts(examples):
    some = examples.inputs[:5]
    every = snapshot(hm.builtin("lookup"), inputs=some)
    rows = hm.fidelity.attention_rows(hm.builtin("lookup"), some)
    for of_head in rows:
        subject = f"layer {of_head.layer} head {of_head.head}"
        assert _value(every, subject, "margin_median") == pytest.approx(np.median(of_head.margins), rel=1e-9)


def test_a_network_without_attention_has_cells_and_an_accuracy():
    net = hm.Network([hm.Affine([[1.0], [-1.0]]), hm.ReLU()], input_dim=1)
    made = snapshot(net, [Probe("line", hm.Segment([-1.0], [1.0]))], inputs=[[2.0], [-2.0], [3.0]], labels=[0, 1, 1])
    assert [(r.quantity, r.value) for r in made] == [("cells", 2), ("accuracy", pytest.approx(2 / 3))]
    assert made[0].low is None and (made[1].low, made[1].high) == pytest.approx((0.0943, 0.9916), abs=1e-4)
    (alone,) = snapshot(net, [], inputs=[2.0], labels=0)  # one input, not as many as there are classes
    assert (alone.value, alone.low, alone.high) == (1.0, pytest.approx(0.025), 1.0)


def test_a_count_that_stops_early_says_that_it_is_a_lower_bound(probes):
    hard = hm.builtin("lookup").with_temperature(0)
    (record,) = snapshot(hard, probes[1:2], max_cells=10)
    assert (record.quantity, record.value) == ("cells_at_least", 10)


def test_infinite_numbers_are_recorded_as_nothing():
    alone = hm.Network([hm.Attention([hm.Head([[1.0]], [[5.0]], [[1.0]])])], input_dim=1, temperature=1.0)
    made = snapshot(alone, inputs=[[2.0]])
    assert _value(made, "layer 0 head 0", "margin_median") is None
    recorder = Recorder()
    recorder.note(0, loss=float("nan"))
    assert recorder.series(MODEL, "loss") == [(0, None)]


# ---- the callback ----


def _training(n_steps, recorder):
    """Something that moves, step by step, in place of training."""
    for step in range(n_steps):
        net = hm.Network([hm.Affine([[1.0], [1.0 - step / 4]], [0.0, 0.5]), hm.ReLU()], input_dim=1)
        recorder(step, net, loss=1.0 / (step + 1))


@pytest.mark.parametrize(
    ("options", "steps"), [({"every": 3}, [0, 3, 6]), ({"steps": (1, 5, 99)}, [1, 5]), ({}, list(range(8)))], ids=str
)
def test_only_the_steps_asked_for_are_recorded(options, steps):
    recorder = Recorder([Probe("line", hm.Segment([-1.0], [1.0]))], **options)
    _training(8, recorder)
    cells = recorder.series("line", "cells")
    assert [step for step, _ in cells] == steps == [step for step, _ in recorder.series(MODEL, "loss")]
    assert dict(cells).get(4, 2) == 2  # at step 4 the second unit is constant


def test_rows_survive_the_trip_to_csv_and_json(tmp_path):
    recorder = Recorder([Probe('a, "b"', hm.Segment([-1.0], [1.0]))], every=4)
    _training(5, recorder)
    recorder.note(5, loss=float("inf"))
    with recorder.write(tmp_path / "run.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    assert [{**row, "step": str(row["step"])} for row in recorder.rows] == [
        row | {name: None if row[name] == "" else float(row[name]) for name in ("value", "low", "high")}
        for row in table
    ]
    document = json.loads(recorder.write(tmp_path / "run.json").read_text())
    assert document["schema"] == "hardmax-dynamics-1" and document["rows"] == recorder.rows
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.csv", "run.json"]


def test_an_existing_file_is_kept_unless_forced(tmp_path):
    file = tmp_path / "run.csv"
    file.write_text("mine")
    recorder = Recorder()
    with pytest.raises(WriteError, match="exists; pass force=True"):
        recorder.write(file)
    assert file.read_text() == "mine"
    recorder.write(file, force=True)
    assert file.read_text() == "step,subject,quantity,value,exactness,low,high\n"
    with pytest.raises(WriteError, match="cannot be written"):
        recorder.write(tmp_path / "no" / "run.csv")


def test_an_error_names_the_step_and_the_probe_and_keeps_what_was_recorded():
    flat = Probe("line", hm.Segment([-1.0], [1.0]))
    recorder = Recorder([flat])
    _training(2, recorder)
    before = recorder.records
    with pytest.raises(hm.errors.DomainError, match="step 2: probe 'line': Segment: its points have shape"):
        recorder(2, hm.Network([hm.Affine([[1.0, 2.0]])], input_dim=2))
    assert recorder.records == before


@pytest.mark.extras
def test_a_network_with_norms_asks_for_a_reference():
    torch = pytest.importorskip("torch", reason="needs torch, which is not installed")
    pytest.importorskip("onnx", reason="needs onnx, which is not installed")
    net = hm.from_torch(torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.LayerNorm(3), torch.nn.ReLU()), np.ones(3))
    probe = Probe("line", hm.Segment([1.0, 0.0, 0.0], [0.0, 1.0, 0.0]))
    with pytest.raises(NotPiecewiseAffineError, match="pass reference="):
        snapshot(net, [probe])
    assert snapshot(net, [probe], reference=[1.0, 0.5, 0.0])[0].value >= 1


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: Recorder(every=0), ParameterError, "at least 1, got 0"),
        (lambda: Recorder([Probe("a", hm.Space(1)), Probe("a", hm.Space(1))]), ParameterError, "different names"),
        (lambda: Recorder(input=[[1.0]]), ParameterError, "got 'input'"),
        (lambda: Recorder()(0, {"weight": 1}), ParameterError, "step 0: expected an hm.Network, got dict; .* read="),
        (lambda: Recorder(read=lambda model: 3)(0, None), ParameterError, "step 0: read: .* got int"),
        (lambda: Recorder().note(0, loss="low"), ParameterError, "loss: expected a number, got str"),
        (lambda: Recorder().write("run.txt"), ParameterError, "ending in .csv or .json, got '.txt'"),
        (lambda: snapshot("net"), ParameterError, "expected an hm.Network, got str"),
        (lambda: snapshot(hm.builtin("lookup"), labels=[1]), ParameterError, "pass inputs="),
        (lambda: snapshot(hm.builtin("demo"), inputs=np.ones((3, 2)), labels=[0, 1]), ShapeError, r"shape \(3,\)"),
        (lambda: snapshot(hm.builtin("demo"), inputs=np.ones((3, 2)), labels=[0, 1, 9]), ParameterError, "0 to 9"),
        (
            lambda: snapshot(hm.builtin("lookup"), inputs=np.zeros((1, 6, 16)), queries=(6,)),
            ParameterError,
            r"positions below 6, .* got \[6\]",
        ),
    ],
)
def test_what_cannot_be_recorded_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


# ---- torch and transformers ----


def _train_torch(torch, recorder=None, n_steps=6):
    """A tiny transformer with dropout, learning a sign; the callback sits where a user would put it."""

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = torch.nn.MultiheadAttention(4, 2, batch_first=True)
            hidden = [torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Dropout(0.1)]
            self.rest = torch.nn.Sequential(*hidden, torch.nn.Flatten(), torch.nn.Linear(24, 3))

        def forward(self, x):
            return self.rest(x + self.attention(x, x, x, need_weights=False)[0])

    torch.manual_seed(0)
    model = Model()
    optimiser = torch.optim.Adam(model.parameters(), lr=0.05)
    for step in range(n_steps):
        x = torch.randn(16, 3, 4)
        loss = torch.nn.functional.cross_entropy(model(x), x.sum((1, 2)).sign().long() + 1)
        if recorder is not None:
            recorder(step, model, loss=loss.item())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return model


@pytest.mark.extras
def test_a_torch_loop_is_recorded_and_trains_as_it_would_have():
    torch = pytest.importorskip("torch", reason="needs torch, which is not installed")
    pytest.importorskip("onnx", reason="needs onnx, which is not installed")
    rng = np.random.default_rng(0)
    ends = rng.normal(size=(2, 3, 4))
    recorder = Recorder([Probe("line", hm.Segment(*ends))], every=2, inputs=rng.normal(size=(10, 3, 4)))
    watched, alone = _train_torch(torch, recorder), _train_torch(torch)
    for one, other in zip(watched.parameters(), alone.parameters(), strict=True):
        assert torch.equal(one, other)
    assert watched.training and [step for step, _ in recorder.series("line", "cells")] == [0, 2, 4]
    last = _train_torch(torch, n_steps=4)  # the weights that step 4 began with
    net = hm.from_torch(last, ends.astype(np.float32))
    assert recorder.series("line", "cells")[-1] == (4, hm.count_cells(hm.skeleton(net), hm.Segment(*ends)))
    assert {"layer 0 head 0", "layer 0 head 1", MODEL} < {record.subject for record in recorder.records}


@pytest.mark.extras
def test_diverged_weights_are_refused_with_the_step():
    torch = pytest.importorskip("torch", reason="needs torch, which is not installed")
    pytest.importorskip("onnx", reason="needs onnx, which is not installed")
    model = torch.nn.Linear(2, 2)
    with torch.no_grad():
        model.weight.fill_(float("nan"))
    with pytest.raises((hm.errors.WeightError, PrecisionError), match="step 3: "):
        Recorder(example=np.ones((2, 2)))(3, model)


@pytest.mark.extras
def test_a_trainer_callback_records_what_the_trainer_reports():
    """Driven by transformers' own handler, state and control, as a Trainer drives it."""
    torch = pytest.importorskip("torch", reason="needs torch, which is not installed")
    pytest.importorskip("onnx", reason="needs onnx, which is not installed")
    transformers = pytest.importorskip("transformers", reason="needs transformers, which is not installed")
    from transformers.trainer_callback import CallbackHandler, TrainerControl, TrainerState

    class Model(torch.nn.Module):
        """As a Trainer wants it: a dictionary with the loss."""

        def __init__(self):
            super().__init__()
            self.core = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))

        def forward(self, x, y):
            return {"loss": torch.nn.functional.mse_loss(self.core(x), y)}

    torch.manual_seed(0)
    model = Model()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    probe = Probe("line", hm.Segment([-1.0, 1.0], [1.0, 0.5]))
    recorder = Recorder([probe], every=2, read=lambda model: hm.from_torch(model.core, np.ones((2, 2))))
    callback = recorder.trainer_callback()
    assert isinstance(callback, transformers.TrainerCallback)
    handler = CallbackHandler([callback], model, None, optimiser, None)
    arguments, state, control = types.SimpleNamespace(), TrainerState(), TrainerControl()
    handler.on_train_begin(arguments, state, control)
    counts = [hm.count_cells(recorder._network(model), probe.domain)]
    losses = []
    for _ in range(4):
        x = torch.randn(8, 2)
        loss = model(x, x.sum(1, keepdim=True))["loss"]
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        state.global_step += 1
        handler.on_step_end(arguments, state, control)
        handler.on_log(arguments, state, control, {"loss": loss.item(), "learning_rate": 0.1})
        losses.append((state.global_step, loss.item()))
        if state.global_step % 2 == 0:
            counts.append(hm.count_cells(recorder._network(model), probe.domain))
    handler.on_log(arguments, state, control, {"train_runtime": 1.0})
    assert recorder.series("line", "cells") == list(zip([0, 2, 4], counts, strict=True))
    assert recorder.series(MODEL, "loss") == losses


@pytest.mark.extras
def test_a_real_trainer_is_recorded_and_not_disturbed(tmp_path):
    torch = pytest.importorskip("torch", reason="needs torch, which is not installed")
    pytest.importorskip("onnx", reason="needs onnx, which is not installed")
    transformers = pytest.importorskip("transformers", reason="needs transformers, which is not installed")
    pytest.importorskip("accelerate", reason="needs accelerate, which is not installed")

    class Model(torch.nn.Module):
        """One head with learnt keys and a readout."""

        def __init__(self):
            super().__init__()
            self.query, self.read = torch.nn.Linear(2, 2, bias=False), torch.nn.Linear(2, 2)
            self.keys, self.values = (torch.nn.Parameter(torch.randn(5, 2)) for _ in range(2))

        def logits(self, x):
            weights = torch.softmax(self.query(x) @ self.keys.T, dim=-1)
            return self.read(weights @ self.values)

        def forward(self, x, labels):
            return {"loss": torch.nn.functional.cross_entropy(self.logits(x), labels)}

    class Kept(transformers.TrainerCallback):
        """A copy of the weights at the beginning and after each step."""

        def __init__(self):
            self.states = {}

        def on_train_begin(self, args, state, control, model=None, **kwargs):
            self.states[state.global_step] = {name: value.clone() for name, value in model.state_dict().items()}

        on_step_end = on_train_begin

    def _network(state):
        w = {name: value.double().numpy() for name, value in state.items()}
        head = hm.Head(w["keys"], w["values"], w["query.weight"])
        return hm.Network([hm.Attention([head]), hm.Affine(w["read.weight"], w["read.bias"])], 2, temperature=1.0)

    def _train(*callbacks):
        torch.manual_seed(5)
        model, x = Model(), torch.randn(40, 2)
        arguments = transformers.TrainingArguments(
            str(tmp_path), max_steps=5, per_device_train_batch_size=8, learning_rate=0.05, logging_steps=1, seed=3,
            use_cpu=True, save_strategy="no", report_to=[], disable_tqdm=True, dataloader_pin_memory=False,
        )  # fmt: skip
        rows = [{"x": row, "labels": int(row[0] > row[1])} for row in x]
        trainer = transformers.Trainer(model, arguments, train_dataset=rows, callbacks=list(callbacks))
        trainer.train()
        losses = [(entry["step"], entry["loss"]) for entry in trainer.state.log_history if "loss" in entry]
        return losses, model.state_dict()

    probe = Probe("box", hm.Box([-1.0, -1.0], [1.0, 1.0]))
    points = np.random.default_rng(0).standard_normal((30, 2))
    recorder = Recorder([probe], every=2, inputs=points, read=lambda model: _network(model.state_dict()))
    kept = Kept()
    losses, recorded = _train(recorder.trainer_callback(), kept)
    same_losses, alone = _train()
    assert losses == same_losses == recorder.series(MODEL, "loss") and len(losses) == 5
    assert all(torch.equal(recorded[name], alone[name]) for name in alone)
    assert sorted(kept.states) == list(range(6))
    nets = {step: _network(kept.states[step]) for step in (0, 2, 4)}
    counts = [(step, hm.count_cells(hm.skeleton(net), probe.domain)) for step, net in nets.items()]
    assert recorder.series("box", "cells") == counts and counts[0][1] > 2
    kept_decisions = [(step, hm.fidelity.compare(net, points).agreement) for step, net in nets.items()]
    assert recorder.series(MODEL, "agreement") == kept_decisions


@pytest.mark.extras
def test_without_transformers_the_callback_names_the_pip_line(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(hm.errors.MissingExtraError, match="pip install"):
        Recorder().trainer_callback()


def test_one_logit_decides_between_two_classes():
    """Positive is class 1, with attention and without; labels of other classes are refused."""
    plain = hm.Network([hm.Affine([[1.0]])], 1)
    (record,) = snapshot(plain, inputs=[[2.0], [-1.0], [3.0], [0.0]], labels=[1, 0, 0, 0])
    assert (record.quantity, record.value) == ("accuracy", 0.75)
    head = hm.Head(keys=[[1.0], [-1.0]], values=[[5.0], [-7.0]], query=[[1.0]])
    soft = hm.Network([hm.Attention([head])], 1, temperature=1.0)
    found = hm.fidelity.compare(soft, [[2.0], [0.0], [-2.0]], labels=[1, 0, 0])
    assert (found.soft_accuracy, found.hard_accuracy, found.kl) == (1.0, 2 / 3, None)  # at the tie key 0 wins
    with pytest.raises(ParameterError, match="expected 0 to 1"):
        hm.fidelity.compare(soft, [[2.0]], labels=[2])
