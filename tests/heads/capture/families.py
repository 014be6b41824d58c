"""Small random models of many families: how to make one, what to run it on, and how it shows its own weights."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

IDS = [3, 14, 15, 9, 26, 5]
_WORDS = {
    "vocab_size": 50, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
    "max_position_embeddings": 40, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
_GROUPED = {"num_key_value_heads": 2, "head_dim": 4}
#: In some versions these compute otherwise by torch's function than written out, which is what shows their weights.
_BY_TORCH = ("GPTNeoXFor", "StableLm", "Falcon", "Gemma2")
_PICTURE = {"image_size": 8, "patch_size": 4, "num_channels": 3}


@dataclass(frozen=True)
class Family:
    """A model class with its configuration; ``takes`` says what it runs on."""

    model: str
    config: str
    sizes: dict[str, Any] = field(default_factory=dict)
    takes: str = "ids"
    base: bool = True  # whether the usual sizes apply
    own: str = "attentions"  # what it shows of its weights: see ``own_weights``

    def build(self, transformers: Any, as_it_shows: bool = True) -> Any:
        """The model; those that run otherwise than they show their weights, written out as they show them."""
        if not hasattr(transformers, self.model):
            pytest.skip("needs a newer transformers, which is not installed")
        sizes = (_WORDS if self.base else {}) | self.sizes
        kind, config = getattr(transformers, self.model), getattr(transformers, self.config)(**sizes)
        if as_it_shows and self.model.startswith(_BY_TORCH):
            return kind._from_config(config, attn_implementation="eager").eval()
        return kind(config).eval()

    def inputs(self, torch: Any) -> dict[str, Any]:
        ids = torch.tensor([IDS])
        if self.takes == "ids":
            return {"input_ids": ids}
        if self.takes == "pair":
            return {"input_ids": ids, "decoder_input_ids": ids[:, :4]}
        if self.takes == "audio":
            return {"input_values": torch.from_numpy(np.random.default_rng(1).standard_normal((1, 400))).float()}
        if self.takes == "mel":
            features = torch.from_numpy(np.random.default_rng(1).standard_normal((1, 8, 20))).float()
            return {"input_features": features, "decoder_input_ids": ids[:, :4]}
        size = int(self.takes)
        return {"pixel_values": torch.from_numpy(np.random.default_rng(1).standard_normal((1, 3, size, size))).float()}


def _decoder(name: str, config: str = "", **sizes: Any) -> Family:
    return Family(f"{name}ForCausalLM", config or f"{name}Config", sizes)


def _encoder(name: str, config: str = "", **sizes: Any) -> Family:
    return Family(f"{name}Model", config or f"{name}Config", sizes)


_OLD = {"n_embd": 16, "n_layer": 2, "n_head": 4, "n_positions": 40}
_MOE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8}
_SWIN = {"image_size": 32, "patch_size": 4, "embed_dim": 8, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4}
_SPEECH = {"conv_dim": (8, 8), "conv_stride": (5, 4), "conv_kernel": (10, 4), "num_feat_extract_layers": 2,
           "num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2}  # fmt: skip
_SEQ = {"d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
        "decoder_attention_heads": 4, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24, "decoder_start_token_id": 1,
        "forced_eos_token_id": None}  # fmt: skip
_T5 = {"d_model": 16, "d_kv": 4, "d_ff": 24, "num_layers": 2, "num_heads": 4, "decoder_start_token_id": 0}

#: Everything that is captured whole, checked against the weights that the model itself shows.
FAMILIES: dict[str, Family] = {
    "GPT-2": Family("GPT2LMHeadModel", "GPT2Config", _OLD),
    "Llama": _decoder("Llama", num_key_value_heads=2),
    "Mistral": _decoder("Mistral", sliding_window=3, **_GROUPED),
    "Qwen2": _decoder("Qwen2", num_key_value_heads=2),
    "Qwen3": _decoder("Qwen3", **_GROUPED),
    "Gemma": _decoder("Gemma", **_GROUPED),
    "Gemma 2": _decoder("Gemma2", query_pre_attn_scalar=4, attn_logit_softcapping=0.5, **_GROUPED),
    "Gemma 3": _decoder("Gemma3", "Gemma3TextConfig", **_GROUPED),
    "OPT": _decoder("OPT", ffn_dim=24, word_embed_proj_dim=16),
    "GPT-NeoX": _decoder("GPTNeoX"),
    "Phi": _decoder("Phi"),
    "Phi-3": _decoder("Phi3", num_key_value_heads=2),
    "Mixtral": _decoder("Mixtral", num_key_value_heads=2, num_local_experts=4),
    "Qwen2-MoE": _decoder("Qwen2Moe", num_key_value_heads=2, shared_expert_intermediate_size=8, **_MOE),
    "Qwen3-MoE": _decoder("Qwen3Moe", **_GROUPED, **_MOE),
    "DeepSeek-V3": _decoder("DeepseekV3", n_routed_experts=4, num_experts_per_tok=2, n_group=2, topk_group=1,
                            moe_intermediate_size=8, kv_lora_rank=8, q_lora_rank=8, qk_rope_head_dim=4,
                            qk_nope_head_dim=4, v_head_dim=4, first_k_dense_replace=1, num_key_value_heads=4),
    "gpt-oss": _decoder("GptOss", num_local_experts=4, num_experts_per_tok=2, **_GROUPED),
    "Olmo": _decoder("Olmo"),
    "Cohere": _decoder("Cohere", num_key_value_heads=2),
    "StableLM": _decoder("StableLm", num_key_value_heads=2),
    "Starcoder2": _decoder("Starcoder2", num_key_value_heads=2),
    "Granite": _decoder("Granite", num_key_value_heads=2),
    "SmolLM3": _decoder("SmolLM3", num_key_value_heads=2),
    "Falcon": _decoder("Falcon"),
    "Falcon with ALiBi": _decoder("Falcon", alibi=True, new_decoder_architecture=False, multi_query=False),
    "Bloom": _decoder("Bloom", n_layer=2, n_head=4),
    "MPT": _decoder("Mpt", d_model=16, n_heads=4, n_layers=2, max_seq_len=40, expansion_ratio=2),
    "GPT-Neo": _decoder("GPTNeo", num_layers=2, num_heads=4, attention_types=[[["global", "local"], 1]],
        window_size=3),
    "GPT-J": _decoder("GPTJ", rotary_dim=4, **_OLD),
    "CodeGen": _decoder("CodeGen", rotary_dim=4, **_OLD),
    "XGLM": _decoder("XGLM", d_model=16, num_layers=2, attention_heads=4, ffn_dim=24),
    "BERT": _encoder("Bert"),
    "RoBERTa": _encoder("Roberta", type_vocab_size=1),
    "DistilBERT": _encoder("DistilBert", dim=16, n_layers=2, n_heads=4, hidden_dim=24),
    "ALBERT": _encoder("Albert", embedding_size=8),
    "Electra": _encoder("Electra", embedding_size=8),
    "ESM": _encoder("Esm", mask_token_id=3),
    "ModernBERT": _encoder("ModernBert"),
    "MPNet": _encoder("MPNet"),
    "DeBERTa": _encoder("Deberta", pos_att_type=["c2p", "p2c"], relative_attention=True, max_relative_positions=8),
    "DeBERTa-v2": _encoder("DebertaV2", pos_att_type=["c2p", "p2c"], relative_attention=True, position_buckets=4),
    "RoFormer": _encoder("RoFormer", embedding_size=16),
    "RemBERT": _encoder("RemBert", input_embedding_size=8, output_embedding_size=8),
    "Megatron-BERT": _encoder("MegatronBert"),
    "XLNet": Family("XLNetModel", "XLNetConfig",
                    {"vocab_size": 50, "d_model": 16, "n_layer": 2, "n_head": 4, "d_inner": 24}, base=False),
    "Funnel": Family("FunnelModel", "FunnelConfig",
                     {"vocab_size": 50, "block_sizes": [1, 1], "d_model": 16, "n_head": 4, "d_head": 4, "d_inner": 24,
                      "num_decoder_layers": 1}, base=False),
    "Canine": _encoder("Canine", local_transformer_stride=128, downsampling_rate=2),
    "I-BERT": _encoder("IBert", type_vocab_size=1),
    "T5 encoder": Family("T5EncoderModel", "T5Config", _T5),
    "T5": Family("T5Model", "T5Config", _T5, "pair", own="pair"),
    "BART": Family("BartModel", "BartConfig", _SEQ, "pair", own="pair"),
    "Whisper": Family("WhisperModel", "WhisperConfig",
                      _SEQ | {"num_mel_bins": 8, "max_source_positions": 10, "max_target_positions": 12}, "mel",
                      own="pair"),
    "wav2vec2": Family("Wav2Vec2Model", "Wav2Vec2Config", _SPEECH, "audio"),
    "WavLM": Family("WavLMModel", "WavLMConfig", _SPEECH, "audio", own="means"),
    "ViT": Family("ViTModel", "ViTConfig", _PICTURE, "8"),
    "CLIP vision": Family("CLIPVisionModel", "CLIPVisionConfig", _PICTURE | {"projection_dim": 8}, "8"),
    "DINOv2": Family("Dinov2Model", "Dinov2Config", _PICTURE, "8"),
    "DeiT": Family("DeiTModel", "DeiTConfig", _PICTURE, "8"),
    "BEiT": Family("BeitModel", "BeitConfig", _PICTURE | {"use_relative_position_bias": True}, "8"),
    "Swin": Family("SwinModel", "SwinConfig", _SWIN, "32", base=False, own="stages"),
    "Swin v2": Family("Swinv2Model", "Swinv2Config", _SWIN, "32", base=False, own="stages"),
    "OpenAI GPT": Family("OpenAIGPTLMHeadModel", "OpenAIGPTConfig", _OLD),
    "XLM": Family("XLMModel", "XLMConfig", {"n_words": 50, "emb_dim": 16, "n_layers": 2, "n_heads": 4}, base=False),
    "Flaubert": Family("FlaubertModel", "FlaubertConfig", {"n_words": 50, "emb_dim": 16, "n_layers": 2,
        "n_heads": 4}, base=False),
    "CTRL": Family("CTRLModel", "CTRLConfig", {"vocab_size": 50, "n_embd": 16, "n_layer": 2, "n_head": 4,
        "dff": 24, "n_positions": 40}, base=False),
    "ProphetNet": Family("ProphetNetModel", "ProphetNetConfig", {"vocab_size": 50, "hidden_size": 16,
        "encoder_ffn_dim": 24, "num_encoder_layers": 2, "num_encoder_attention_heads": 4, "decoder_ffn_dim": 24,
        "num_decoder_layers": 2, "num_decoder_attention_heads": 4, "max_position_embeddings": 40}, "pair",
        base=False, own=""),
    "ConvBERT": _encoder("ConvBert", embedding_size=16, head_ratio=2, conv_kernel_size=3),
    "BigBird": _encoder("BigBird", block_size=2, num_random_blocks=1, attention_type="original_full"),
    "SqueezeBERT": Family("SqueezeBertModel", "SqueezeBertConfig", {"embedding_size": 16, "q_groups": 1, "k_groups": 1,
        "v_groups": 1, "post_attention_groups": 1, "intermediate_groups": 1, "output_groups": 1}, own="scores"),
    "Luke": _encoder("Luke", entity_vocab_size=10, entity_emb_size=8),
    "Tapas": _encoder("Tapas"),
    "LeViT": Family("LevitModel", "LevitConfig", {"image_size": 64, "hidden_sizes": [16, 16, 16],
        "num_attention_heads": [2, 2, 2], "depths": [1, 1, 1], "key_dim": [4, 4, 4]}, "64", base=False, own=""),
    "SEW-D": Family("SEWDModel", "SEWDConfig", {**_SPEECH, "squeeze_factor": 1, "max_position_embeddings": 40,
        "position_buckets": 4}, "audio"),
    "Hiera": Family("HieraModel", "HieraConfig", {"image_size": [32, 32], "patch_stride": [4, 4], "patch_size": [7,
        7], "embed_dim": 8, "depths": [1, 1], "num_heads": [1, 2], "query_stride": [2, 2], "masked_unit_size": [4,
        4], "num_query_pool": 1}, "32", base=False),
    "MobileViT": Family("MobileViTModel", "MobileViTConfig", {"image_size": 64, "hidden_sizes": [16, 16, 16],
        "neck_hidden_sizes": [8, 8, 8, 8, 8, 8, 16], "num_attention_heads": 2}, "64", base=False, own=""),
    "GPT-BigCode": _decoder("GPTBigCode", **_OLD),
    "Pegasus": Family("PegasusModel", "PegasusConfig", _SEQ, "pair", own="pair"),
    "Marian": Family("MarianModel", "MarianConfig", _SEQ, "pair", own="pair"),
    "mBART": Family("MBartModel", "MBartConfig", _SEQ, "pair", own="pair"),
    "XLM-RoBERTa": _encoder("XLMRoberta", type_vocab_size=1),
    "LayoutLM": _encoder("LayoutLM"),
    "Splinter": _encoder("Splinter"),
    "BioGPT": _decoder("BioGpt"),
    "Persimmon": _decoder("Persimmon"),
    "Nemotron": _decoder("Nemotron", num_key_value_heads=2),
    "GLM": _decoder("Glm", **_GROUPED),
    "OLMo 2": _decoder("Olmo2"),
    "HuBERT": Family("HubertModel", "HubertConfig", _SPEECH, "audio"),
    "SegFormer": Family("SegformerModel", "SegformerConfig", {"hidden_sizes": [8, 8, 8, 8], "depths": [1, 1, 1, 1],
        "num_attention_heads": [1, 2, 2, 2], "decoder_hidden_size": 8}, "64", base=False),
    "YOLOS": Family("YolosModel", "YolosConfig", _PICTURE | {"image_size": [8, 8], "num_detection_tokens": 2}, "8"),
    "SigLIP vision": Family("SiglipVisionModel", "SiglipVisionConfig", _PICTURE, "8", own="first"),
    "Jamba": _decoder("Jamba", num_key_value_heads=2, mamba_d_state=4, mamba_dt_rank=4, use_mamba_kernels=False,
        attn_layer_period=2, attn_layer_offset=1, num_experts=2),
    "PVT": Family("PvtModel", "PvtConfig",
                  {"image_size": 32, "depths": [1, 1, 1, 1], "hidden_sizes": [8, 8, 16, 16], "num_attention_heads":
                   [1, 2, 2, 2], "sequence_reduction_ratios": [4, 2, 1, 1]}, "32", base=False),
}  # fmt: skip


#: Models without heads, or whose heads cannot be followed: refused, with what still works.
REFUSED: dict[str, Family] = {
    "FNet": Family("FNetForMaskedLM", "FNetConfig", {}),
    "Mamba": Family("MambaForCausalLM", "MambaConfig", {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 2,
                                                        "state_size": 4}, base=False),
    "RWKV": Family("RwkvModel", "RwkvConfig", {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 2,
                                               "context_length": 40}, base=False),
    "Longformer": _encoder("Longformer", attention_window=4),
    "Nystromformer": _encoder("Nystromformer", num_landmarks=3, segment_means_seq_len=6),
    "LED": Family("LEDModel", "LEDConfig", _SEQ | {"attention_window": 4}, "pair"),
}  # fmt: skip


def own_weights(family: Family, model: Any, inputs: dict[str, Any], torch: Any) -> list[Any]:
    """For each captured layer the weights (heads, n_q, n_k) that the model shows by itself; None where it shows none.

    ``own`` says what it shows: "attentions" of every layer; "pair", of an encoder, then self- and cross-attention of
    each layer of the decoder; "stages", of the last of two layers a stage; "first",
        of all but the last layers; "means"
    over the heads; "scores" in place of weights; "" nothing.
    """
    if not family.own:
        return []
    for part in model.modules():
        if hasattr(part, "config") and hasattr(part.config, "_attn_implementation"):
            part.config._attn_implementation = "eager"
    with torch.no_grad():
        shown = model(**inputs, output_attentions=True)
    if family.own == "pair":
        pairs = zip(shown.decoder_attentions, shown.cross_attentions, strict=True)
        found = [*shown.encoder_attentions, *(weights for pair in pairs for weights in pair)]
    else:
        found = list(shown.attentions)
    found = [weights.reshape(-1, *weights.shape[-2:]).double().numpy() for weights in found]  # windows one by one
    if family.own == "stages":
        found = [weights for last in found for weights in (None, last)]
    if family.own == "scores":
        found = [np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True) for scores in found]
    return found
