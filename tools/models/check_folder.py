"""Lets Transformers answer a question with the model of a folder, to see that it talks sense.

    python check_folder.py DIR

Development only: needs torch and transformers.
"""

import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32).eval()
text = "It costs 1234 euros, doesn't it?  Ja — 42\n\n\tnaïve 😀"
ids = tokenizer(text)["input_ids"]
assert tokenizer.decode(ids) == text, tokenizer.convert_ids_to_tokens(ids)
print(tokenizer.convert_ids_to_tokens(ids))
for question in ("What is the capital of France?", "Name three colours."):
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": question}], add_generation_prompt=True, return_tensors="pt",
        return_dict=True,
    )
    answer = model.generate(**prompt, max_new_tokens=40, do_sample=False)
    print(tokenizer.decode(answer[0][prompt["input_ids"].shape[1]:]))
