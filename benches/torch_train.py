#!/usr/bin/env python3
"""Training steps of `gantry bench train` in PyTorch on the CPU, and both beside each other.

    torch_train.py measure CASE [--compile] [--threads=2] [--steps=5]     one JSON line
    torch_train.py compare CASE --gantry=PATH [--rounds=5] [--threads=2]  both in turns

CASE is a row of `gantry bench train`: train_gpt2_bf16_4x256, train_smollm2_f32_1x512 ... The models
are those of transformers with random weights and tokens, SDPA attention and fused AdamW, with the
gradient clipped to norm 1; bf16 means bf16 parameters with f32 masters and states, as Gantry has it
(--autocast: f32 parameters under autocast instead). `compare` gives PyTorch a tuned allocator (huge
pages, no trimming), takes the better of eager and compiled, and prints medians and their ratio.

Needs the Python packages torch and transformers.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

TUNABLES = (
    "glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=4294967296:"
    "glibc.malloc.trim_threshold=8589934592"
)


def parse_case(case):
    _, model, dtype, shape = case.split("_")
    batch, length = map(int, shape.split("x"))
    return model, dtype, batch, length


def build(model, length):
    from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig

    if model == "gpt2":
        config = GPT2Config(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    else:
        config = LlamaConfig(
            vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30,
            num_attention_heads=9, num_key_value_heads=3, head_dim=64, rope_theta=100000.0,
            max_position_embeddings=max(length, 2048), tie_word_embeddings=True,
        )
    config.use_cache = False
    return AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")


def measure(options):
    import torch

    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    model_name, dtype, batch, length = parse_case(options.case)
    model = build(model_name, length).train()
    half = dtype == "bf16" and not options.autocast
    masters = []
    if half:
        model = model.to(torch.bfloat16)
        masters = [(p, p.detach().float().requires_grad_()) for p in model.parameters()]
    parameters = [m for _, m in masters] if half else list(model.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, weight_decay=0.1, fused=True)
    vocabulary = model.config.vocab_size
    tokens = torch.randint(0, vocabulary, (batch, length))
    targets = torch.randint(0, vocabulary, (batch, length))

    def loss_of(tokens, targets):
        with torch.autocast("cpu", torch.bfloat16, enabled=options.autocast):
            logits = model(input_ids=tokens).logits
        return torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), targets.flatten())

    if options.compile:
        loss_of = torch.compile(loss_of)

    def step():
        loss = loss_of(tokens, targets)
        loss.backward()
        for parameter, master in masters:
            master.grad = parameter.grad.float()
            parameter.grad = None
        torch.nn.utils.clip_grad_norm_(parameters, 1.0, foreach=True)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        with torch.no_grad():
            if masters:
                torch._foreach_copy_([p for p, _ in masters], [m for _, m in masters])

    for _ in range(2):
        step()
    seconds = []
    for _ in range(options.steps):
        begin = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - begin)
    print(json.dumps({
        "case": options.case,
        "mode": "compiled" if options.compile else "eager",
        "tokens_per_second": batch * length / statistics.median(seconds),
        "torch": torch.__version__,
    }), flush=True)


def torch_side(options, *mode):
    environment = dict(os.environ, GLIBC_TUNABLES=TUNABLES, OMP_NUM_THREADS=str(options.threads))
    command = [sys.executable, __file__, "measure", options.case,
               f"--threads={options.threads}", f"--steps={options.steps}", *mode]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        print(f"# torch {' '.join(mode)} failed: {result.stderr.strip().splitlines()[-1:]}")
        return None
    return json.loads(result.stdout.strip().splitlines()[-1])["tokens_per_second"]


def gantry_side(options):
    command = [options.gantry, "bench", "train", f"--only={options.case}", "--json",
               f"--pairs={options.steps}", f"--threads={options.threads}", f"--dir={options.dir}"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    return {row["name"]: row["value"] for row in json.loads(result.stdout)["rows"]}


def compare(options):
    sides = {"gantry": [], "gantry_tenth": [], "eager": [], "compiled": []}
    modes = {"eager": (), "compiled": ("--compile",)}
    if options.autocast:
        modes = {name: (*mode, "--autocast") for name, mode in modes.items()}
    for _ in range(options.rounds):
        rows = gantry_side(options)
        sides["gantry"].append(rows[options.case])
        sides["gantry_tenth"].append(rows[options.case + "_tenth"])
        for name, mode in modes.items():
            value = torch_side(options, *mode)
            if value is not None:
                sides[name].append(value)
    medians = {name: statistics.median(values) for name, values in sides.items() if values}
    best = max((medians.get(name, 0.0) for name in modes), default=0.0)
    print(json.dumps({
        "case": options.case,
        "rounds": options.rounds,
        "tokens_per_second": medians,
        "resident_ratio": medians["gantry"] / best if best else None,
        "tenth_ratio": medians["gantry_tenth"] / best if best else None,
        "load_average": os.getloadavg()[0],
    }))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=["measure", "compare"])
    parser.add_argument("case")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--autocast", action="store_true")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--gantry", default="gantry")
    parser.add_argument("--dir", default=".")
    options = parser.parse_args()
    measure(options) if options.command == "measure" else compare(options)


main()
