#!/usr/bin/env python3
"""Writes what models with low-rank adapters compute, one safetensors file each.

    python3 make_adapter_goldens.py      # needs torch, transformers and safetensors

The bases are the models of make_goldens.py with the same weights, which are not written again. The
adapters are written out below as PEFT computes them (tuners/lora/layer.py, dora.py), without
dropout; B is not zero, so that A has a gradient.
A file holds, in float32 unless said otherwise:
    adapters/NAME    before the first step, NAME as in PEFT's files without "base_model.model."
    gradients/NAME   of the mean loss; updated/NAME after STEPS steps of AdamW
    merged/NAME      of each adapted weight before the first step, as in the base's state dict
    scalars          float64: loss, norm of all gradients, loss after the steps
The metadata hold the name of the base's file and the adapters' settings.
"""
import json
import math
import os

import torch
from safetensors.torch import save_file
from transformers.pytorch_utils import Conv1D

import make_goldens as base


class Adapter(torch.nn.Module):
    """A linear map with an adapter; `weight` is [out, in] whatever the base stores."""

    def __init__(self, linear, rank, scale, dora, generator):
        super().__init__()
        self.linear, self.scale, self.dora = linear, scale, dora
        out, inside = self.weight().shape

        def values(*shape):
            return torch.nn.Parameter(
                (0.3 * torch.randn(shape, generator=generator)).to(torch.bfloat16).float())

        self.lora_A, self.lora_B = values(rank, inside), values(out, rank)
        if dora:
            norms = self.weight().norm(dim=1)
            self.magnitude = torch.nn.Parameter(
                (norms * (1 + 0.1 * values(out).detach())).to(torch.bfloat16).float().detach())

    def weight(self):
        weight = self.linear.weight
        return weight.T if isinstance(self.linear, Conv1D) else weight

    def norms(self):
        changed = self.weight() + self.scale * (self.lora_B @ self.lora_A).detach()
        return changed.norm(dim=1).detach()

    def forward(self, x):
        result = self.linear(x)
        change = x @ self.lora_A.T @ self.lora_B.T * self.scale
        if not self.dora:
            return result + change
        gain = self.magnitude / self.norms()
        without_bias = result if self.linear.bias is None else result - self.linear.bias
        return result + (gain - 1) * without_bias + gain * change

    def merged(self):
        weight = self.weight() + self.scale * self.lora_B @ self.lora_A
        if self.dora:
            weight = (self.magnitude / self.norms()).view(-1, 1) * weight
        return (weight.T if isinstance(self.linear, Conv1D) else weight).detach().contiguous()


def adapters():
    yield "lora_llama", "llama", dict(rank=3, alpha=6, targets=["q_proj", "v_proj", "down_proj"])
    yield "lora_gpt2", "gpt2", dict(rank=2, alpha=3, targets=["c_attn", "mlp.c_proj"],
                                    rank_stabilized=True)
    yield "dora_llama", "llama_biases", dict(rank=2, alpha=3, magnitudes=True,
                                             targets=["all-linear"])


def adapt(model, settings):
    generator = torch.Generator().manual_seed(3)
    rank = settings["rank"]
    stabilized = settings.get("rank_stabilized", False)
    scale = settings["alpha"] / (math.sqrt(rank) if stabilized else rank)
    found = {}
    for name, module in list(model.named_modules()):
        if not isinstance(module, (torch.nn.Linear, Conv1D)) or name == "lm_head":
            continue
        targets = settings["targets"]
        if targets != ["all-linear"] and not any(name.endswith("." + t) for t in targets):
            continue
        parent = model.get_submodule(name.rpartition(".")[0])
        adapter = Adapter(module, rank, scale, settings.get("magnitudes", False), generator)
        setattr(parent, name.rpartition(".")[2], adapter)
        found[name] = adapter
    return found


def parameters(found):
    for name, adapter in found.items():
        yield name + ".lora_A.weight", adapter.lora_A
        yield name + ".lora_B.weight", adapter.lora_B
        if adapter.dora:
            yield name + ".lora_magnitude_vector", adapter.magnitude


def golden(model_class, config, settings):
    torch.manual_seed(0)
    config._attn_implementation = "eager"
    model = model_class(config).train()
    base.set_weights(model)
    model.requires_grad_(False)
    found = adapt(model, settings)
    tokens, targets = base.batch(config.vocab_size)
    trained = dict(parameters(found))

    def step():
        model.zero_grad()
        logits = model(input_ids=tokens, use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(),
                                                 ignore_index=-1)
        loss.backward()
        return loss.item()

    tensors = {f"adapters/{n}": p.detach().clone() for n, p in trained.items()}
    tensors.update({f"merged/{n}.weight": a.merged() for n, a in found.items()})
    loss = step()
    gradients = {n: p.grad.clone() for n, p in trained.items()}
    norm = base.flat(gradients).double().norm().item()
    groups = [dict(params=[p for p in trained.values() if p.dim() > 1]),
              dict(params=[p for p in trained.values() if p.dim() == 1], weight_decay=0.0)]
    optimizer = torch.optim.AdamW(groups, **base.OPTIMIZER)
    for _ in range(base.STEPS):
        step()
        torch.nn.utils.clip_grad_norm_(trained.values(), base.CLIP)
        optimizer.step()
    after = step()
    tensors.update({f"gradients/{n}": g for n, g in gradients.items()})
    tensors.update({f"updated/{n}": p.detach().clone() for n, p in trained.items()})
    scalars = [loss, norm, after]
    tensors["scalars"] = torch.tensor(scalars, dtype=torch.float64)
    return tensors, scalars


def main():
    folder = os.path.dirname(os.path.abspath(__file__))
    models = {name: (model_class, config) for name, model_class, config in base.models()}
    for name, of, settings in adapters():
        tensors, scalars = golden(*models[of], settings)
        path = os.path.join(folder, name + ".safetensors")
        save_file(tensors, path, dict(base=of, adapters=json.dumps(settings)))
        print(name, os.path.getsize(path), scalars)


if __name__ == "__main__":
    main()
