#!/usr/bin/env python3
"""Writes what Transformers computes with tiny models of each family, one safetensors file each.

    python3 make_goldens.py        # needs torch, transformers and safetensors; writes beside itself

A file holds, in float32 unless said otherwise:
    weights/NAME     the parameters before the first step, as the model's state dict names and
                     shapes them; bfloat16 holds each exactly
    tokens, targets  int32 [sequences, length]; a target of -1 is not scored
    logits           [sequences, length, vocabulary]
    gradients/NAME   of the mean over scored targets of -log p(target)
    updated/NAME     the parameters after STEPS steps of AdamW on the same batch
    scalars          float64: loss, norm of all gradients, and how far the same model in bfloat16
                     is from this one: of the logits, and of the gradients; each the L2 norm of the
                     difference over the L2 norm
The metadata hold the config.json and the optimizer's settings.
"""
import json
import os

import torch
from safetensors.torch import save_file
from transformers import (GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, MistralConfig,
                          MistralForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config,
                          Qwen3ForCausalLM)

STEPS = 5
# epsilon is far above the noise of gradients that are zero, such as those of key biases in gpt2.
OPTIMIZER = dict(lr=0.01, betas=(0.9, 0.95), eps=1e-4, weight_decay=0.1)
CLIP = 1.0
SEQUENCES, LENGTH = 2, 13
COMMON = dict(vocab_size=41, hidden_size=20, intermediate_size=22, num_hidden_layers=2,
              num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=32)


def rope(kind, theta=100.0, **settings):
    return dict(rope_type=kind, rope_theta=theta, **settings)


def models():
    gpt2 = dict(vocab_size=41, n_embd=20, n_head=4, n_layer=2, n_positions=17, n_inner=26,
                resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
                bos_token_id=0, eos_token_id=0)
    yield "gpt2", GPT2LMHeadModel, GPT2Config(**gpt2, activation_function="gelu_new")
    yield "gpt2_untied", GPT2LMHeadModel, GPT2Config(**gpt2, activation_function="gelu",
                                                     tie_word_embeddings=False)
    yield "llama", LlamaForCausalLM, LlamaConfig(
        **COMMON, head_dim=6, tie_word_embeddings=False,
        rope_parameters=rope("llama3", theta=500.0, factor=8.0, low_freq_factor=1.0,
                             high_freq_factor=4.0, original_max_position_embeddings=32))
    yield "llama_biases", LlamaForCausalLM, LlamaConfig(
        **COMMON, head_dim=4, tie_word_embeddings=True, attention_bias=True, mlp_bias=True,
        rms_norm_eps=1e-5, rope_parameters=rope("yarn", theta=100.0, factor=4.0,
                                                original_max_position_embeddings=16))
    yield "llama_dynamic", LlamaForCausalLM, LlamaConfig(
        **{**COMMON, "max_position_embeddings": 8}, head_dim=6, tie_word_embeddings=True,
        rope_parameters=rope("dynamic", factor=2.0))
    yield "mistral", MistralForCausalLM, MistralConfig(
        **COMMON, head_dim=6, sliding_window=5, tie_word_embeddings=False,
        rope_parameters=rope("default"))
    yield "qwen2", Qwen2ForCausalLM, Qwen2Config(
        **{**COMMON, "hidden_size": 16}, use_sliding_window=True, sliding_window=4,
        max_window_layers=1, tie_word_embeddings=True, rope_parameters=rope("default"))
    yield "qwen3", Qwen3ForCausalLM, Qwen3Config(
        **COMMON, head_dim=8, tie_word_embeddings=False, attention_bias=False,
        rope_parameters=rope("linear", factor=2.0))


def set_weights(model):
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            values = 0.3 * torch.randn(parameter.shape, generator=generator)
            if ("norm" in name or "ln_" in name) and not name.endswith("bias"):
                values += 1.0
            parameter.copy_(values.to(torch.bfloat16).float())


def batch(vocabulary):
    generator = torch.Generator().manual_seed(2)
    tokens = torch.randint(0, vocabulary, (SEQUENCES, LENGTH), generator=generator)
    targets = torch.randint(0, vocabulary, (SEQUENCES, LENGTH), generator=generator)
    targets[0, 4] = targets[1, 0] = targets[1, 12] = -1
    return tokens, targets


def forward_backward(model, tokens, targets):
    model.zero_grad()
    logits = model(input_ids=tokens, use_cache=False).logits
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(),
                                             ignore_index=-1)
    loss.backward()
    gradients = {name: parameter.grad.detach().float().clone()
                 for name, parameter in model.named_parameters()}
    return logits.detach().float(), loss.item(), gradients


def flat(tensors):
    return torch.cat([tensors[name].flatten() for name in sorted(tensors)])


def distance(a, b):
    return ((a - b).norm() / b.norm()).item()


def golden(model_class, config):
    torch.manual_seed(0)
    config._attn_implementation = "eager"
    model = model_class(config).train()
    set_weights(model)
    tokens, targets = batch(config.vocab_size)
    tensors = {f"weights/{n}": p.detach().clone() for n, p in model.named_parameters()}
    logits, loss, gradients = forward_backward(model, tokens, targets)
    norm = flat(gradients).double().norm().item()
    half_logits, _, half_gradients = forward_backward(model.to(torch.bfloat16), tokens, targets)
    scalars = [loss, norm, distance(half_logits, logits),
               distance(flat(half_gradients), flat(gradients))]

    model = model_class(config).train()
    set_weights(model)
    decayed = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() == 1]
    groups = [dict(params=decayed), dict(params=others, weight_decay=0.0)]
    optimizer = torch.optim.AdamW(groups, **OPTIMIZER)
    for _ in range(STEPS):
        forward_backward(model, tokens, targets)
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
    tensors.update({f"gradients/{n}": g for n, g in gradients.items()})
    tensors.update({f"updated/{n}": p.detach().clone() for n, p in model.named_parameters()})
    tensors.update(tokens=tokens.int(), targets=targets.int(), logits=logits,
                   scalars=torch.tensor(scalars, dtype=torch.float64))
    metadata = dict(config=config.to_json_string(use_diff=True),
                    optimizer=json.dumps(dict(**OPTIMIZER, steps=STEPS, clip=CLIP)))
    return {name: tensor.contiguous() for name, tensor in tensors.items()}, metadata, scalars


def main():
    folder = os.path.dirname(os.path.abspath(__file__))
    for name, model_class, config in models():
        tensors, metadata, scalars = golden(model_class, config)
        path = os.path.join(folder, name + ".safetensors")
        save_file(tensors, path, metadata)
        print(name, os.path.getsize(path), scalars)


if __name__ == "__main__":
    main()
