"""Makes the small models beside itself, one folder each, with Transformers.

Each folder is what save_pretrained writes, and expected.safetensors: token ids [2, 12] and the
log-probability of each token after the first, [2, 11], computed in float32 from the folder's
weights. Development only: python make_models.py, with torch and transformers.
"""

import pathlib
import shutil

import torch
from safetensors.torch import save_file
from transformers import (
    GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM,
    Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM,
)

HERE = pathlib.Path(__file__).parent
VOCABULARY = 40
SHAPE = dict(
    vocab_size=VOCABULARY, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=32,
    bos_token_id=1, eos_token_id=2, pad_token_id=None, initializer_range=0.3,
)
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 1000.0, "factor": 4.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 16,
}

MODELS = {
    "gpt2": (GPT2LMHeadModel, GPT2Config(
        vocab_size=VOCABULARY, n_embd=16, n_layer=2, n_head=4, n_positions=32,
        bos_token_id=1, eos_token_id=2, initializer_range=0.3), {}),
    "llama": (LlamaForCausalLM, LlamaConfig(
        **SHAPE, head_dim=8, rope_parameters=LLAMA3, attention_bias=True, mlp_bias=True), {}),
    "llama_tied": (LlamaForCausalLM, LlamaConfig(**SHAPE, tie_word_embeddings=True), {}),
    "mistral": (MistralForCausalLM, MistralConfig(**SHAPE, sliding_window=5), {}),
    "qwen2": (Qwen2ForCausalLM, Qwen2Config(**SHAPE, tie_word_embeddings=True), {}),
    # In shards.
    "qwen3": (Qwen3ForCausalLM, Qwen3Config(**SHAPE, head_dim=6), {"max_shard_size": "8KB"}),
}

for number, (name, (kind, config, options)) in enumerate(MODELS.items()):
    torch.manual_seed(number)
    model = kind(config).eval()
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            # Biases and norms too, so that none of them can be mixed up.
            if parameter.dim() == 1:
                parameter.copy_(torch.randn_like(parameter) * 0.3 + ("bias" not in key))
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder, **options)
    tokens = torch.randint(0, VOCABULARY, (2, 12))
    with torch.no_grad():
        logits = model(tokens).logits
    scores = torch.log_softmax(logits, -1)[:, :-1].gather(2, tokens[:, 1:, None])[:, :, 0]
    save_file(
        {"tokens": tokens.to(torch.int32), "log_probabilities": scores.contiguous()},
        folder / "expected.safetensors",
    )
    print(name, sum(file.stat().st_size for file in folder.iterdir()), "bytes")
