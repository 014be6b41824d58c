"""Routers of mixtures of experts as heads, against what the models themselves choose."""

import numpy as np
import pytest

import hardmax as hm
from hardmax.errors import EmptyError, OperatorError, ParameterError

torch = pytest.importorskip("torch", reason="needs torch, which is not installed")
transformers = pytest.importorskip("transformers", reason="needs transformers, which is not installed")
pytestmark = pytest.mark.extras

_SIZES = {
    "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 2, "vocab_size": 40, "num_experts_per_tok": 2, "moe_intermediate_size": 8,
}  # fmt: skip
_MODELS = {
    "Mixtral": {"num_local_experts": 4},
    "Qwen2Moe": {"num_experts": 6, "decoder_sparse_step": 1, "shared_expert_intermediate_size": 8},
    "GptOss": {"num_local_experts": 4, "head_dim": 8},
    "Olmoe": {"num_experts": 4},
}
_IDS = [[1, 5, 7, 2, 9], [3, 3, 8]]


def _model(name, **sizes):
    torch.manual_seed(11)
    config = getattr(transformers, f"{name}Config")(**_SIZES, **sizes)
    model = getattr(transformers, f"{name}ForCausalLM")(config).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model


def _negated_in_place(scores):
    scores.neg_()
    return scores.topk(2, -1).indices


@pytest.mark.parametrize("name", _MODELS)
def test_routers_choose_the_experts_that_the_model_takes(name):
    model = _model(name, **_MODELS[name])
    taken = []
    routers = [part for part in model.modules() if type(part).__name__.endswith("Router")]
    hooks = [part.register_forward_hook(lambda _part, _args, result: taken.append(result[-1])) for part in routers]
    found = hm.capture_routers(model, _IDS)
    for hook in hooks:
        hook.remove()
    assert len(found) == len(routers) == 2
    for layer, router in enumerate(found):
        own = torch.cat([indices.reshape(-1, 2) for indices in taken[layer::2]]).numpy()
        assert router.chosen.shape == (8, 2) and (np.sort(router.chosen) == np.sort(own)).all()
        assert router.load.sum() == pytest.approx(1) and router.load.argmax() in own
        assert (router.margins > 0).all()


def test_what_is_asked_of_heads_can_be_asked_of_a_router():
    (first, _) = hm.capture_routers(_model("Mixtral", num_local_experts=4), _IDS)
    names = tuple(f"expert {e}" for e in range(4))
    capture = hm.models.Capture("routers", names, (first.head,), tuple(map(str, range(8))))
    (found,) = hm.analyse_heads(capture)
    assert found.n_live == 4 and found.n_reachable_hull >= found.n_chosen
    assert (found.winners == first.chosen[:, 0]).all()
    assert (first.head.biases is None) and hm.power_diagram(first.head.keys).live.all()


class _Gate(torch.nn.Module):
    def __init__(self, choose, dtype=torch.float32):
        super().__init__()
        self.choose, self.linear = choose, torch.nn.Linear(3, 4).to(dtype)

    def forward(self, x):
        return self.choose(self.linear(x))


def test_equal_scores_go_to_the_first_expert_though_torch_may_take_another():
    gate = _Gate(lambda s: s.topk(2, -1).indices)
    with torch.no_grad():
        gate.linear.weight[:] = torch.tensor([[1.0, 0, 0], [1.0, 0, 0], [0, 1.0, 0], [1.0, 0, 0]])
        gate.linear.bias.zero_()
    (router,) = hm.capture_routers(gate, torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]))
    assert router.chosen.tolist() == [[0, 1], [2, 0]] and router.load.tolist() == [0.5, 0.25, 0.25, 0.0]


def test_an_argmax_is_a_router_of_one():
    (router,) = hm.capture_routers(_Gate(lambda s: s.softmax(-1).argmax(-1)), torch.randn(9, 3))
    assert router.top == 1 and len(router.chosen) == 9 and (router.margins >= 0).all()


def test_routers_that_are_no_power_diagram_are_refused_and_other_models_named():
    groups = {"n_routed_experts": 4, "n_group": 2, "topk_group": 1, "first_k_dense_replace": 0, "n_shared_experts": 1}
    ranks = {"qk_rope_head_dim": 4, "qk_nope_head_dim": 4, "v_head_dim": 4, "kv_lora_rank": 4, "q_lora_rank": 4}
    model = _model("DeepseekV3", **groups, **ranks)
    with pytest.raises(OperatorError, match="no power diagram"):
        hm.capture_routers(model, _IDS)
    with pytest.raises(OperatorError, match="no power diagram"):
        hm.capture_routers(_Gate(lambda s: (s.sigmoid() + s.cos()).topk(2, -1).indices), torch.randn(2, 3))
    with pytest.raises(OperatorError, match="no power diagram"):
        hm.capture_routers(_Gate(_negated_in_place), torch.randn(2, 3))
    with pytest.raises(EmptyError, match="took no top-k"):
        hm.capture_routers(torch.nn.Linear(3, 4), torch.randn(2, 3))
    with pytest.raises(ParameterError, match="a torch module"):
        hm.capture_routers("model.onnx", _IDS)
