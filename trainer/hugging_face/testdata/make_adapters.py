"""Makes an adapter for two of the small models, and those models with it merged, with PEFT.

NAME_adapter/ is what PEFT saves; NAME_adapter/merged.safetensors holds the weights that
merge_and_unload leaves. Development only: python make_adapters.py, with torch, transformers, peft.
"""

import pathlib
import shutil

import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

HERE = pathlib.Path(__file__).parent
ADAPTERS = {
    "llama": LoraConfig(r=4, lora_alpha=6, target_modules=["q_proj", "v_proj", "down_proj"],
                        task_type="CAUSAL_LM"),
    "gpt2": LoraConfig(r=2, lora_alpha=3, use_rslora=True, target_modules=["c_attn", "c_fc"],
                       fan_in_fan_out=True, task_type="CAUSAL_LM"),
}

for number, (name, config) in enumerate(ADAPTERS.items()):
    torch.manual_seed(number)
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(HERE / name), config)
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if "lora_" in key:
                parameter.normal_(0, 0.5)
    folder = HERE / f"{name}_adapter"
    shutil.rmtree(folder, ignore_errors=True)
    model.peft_config["default"].base_model_name_or_path = name
    model.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)
    merged = model.merge_and_unload()
    weights = {key: value.contiguous() for key, value in merged.state_dict().items()
               if key != "lm_head.weight" or not merged.config.tie_word_embeddings}
    save_file(weights, folder / "merged.safetensors")
    for file in folder.iterdir():
        file.chmod(0o644)
    print(name, sorted(file.name for file in folder.iterdir()))
