"""Compares a model's folder that Gantry wrote with what Transformers made of the original.

    python check_saved.py FOLDER ORIGINAL    ORIGINAL is one of the small models beside this script

Loads FOLDER with Transformers and compares its log-probabilities with expected.safetensors of the
original. Development only: needs torch and transformers.
"""

import pathlib
import sys

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

expected = load_file(pathlib.Path(__file__).parent / sys.argv[2] / "expected.safetensors")
tokens = expected["tokens"].long()
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32).eval()
with torch.no_grad():
    scores = torch.log_softmax(model(tokens).logits, -1)
scores = scores[:, :-1].gather(2, tokens[:, 1:, None])[:, :, 0]
distance = (scores - expected["log_probabilities"]).abs().max().item()
print(f"{sys.argv[2]}: the largest difference is {distance:.3g}")
if distance > 1e-6:
    sys.exit("check_saved: they differ")
