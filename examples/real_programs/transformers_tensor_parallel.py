#!/usr/bin/env python3
"""Decodes with a small Llama of Hugging Face transformers, its products shared by the ranks (tp_plan="auto"), on CPUs.

python3 -m torch.distributed.run --standalone --nproc_per_node 2 examples/real_programs/transformers_tensor_parallel.py
"""

import argparse
import hashlib
import tempfile

import torch
import torch.distributed as dist
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM


def decode(model, prompt, tokens):
    """The tokens, and what the model says of the next one after each."""
    made = model.generate(
        prompt, max_new_tokens=tokens, do_sample=False, output_logits=True, return_dict_in_generate=True, pad_token_id=0
    )
    return made.sequences, torch.cat(made.logits)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=48, help="how many are decoded (48)")
    options = parser.parse_args()

    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=256,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=128,
        bos_token_id=None,
        eos_token_id=None,
    )
    whole = LlamaForCausalLM(config).eval()
    with tempfile.TemporaryDirectory() as folder:
        whole.save_pretrained(folder)
        # Makes the process group, too.
        shared = AutoModelForCausalLM.from_pretrained(folder, tp_plan="auto").eval()
    prompt = torch.arange(16).reshape(1, -1)
    tokens, logits = decode(shared, prompt, options.tokens)
    expected_tokens, expected_logits = decode(whole, prompt, options.tokens)
    torch.testing.assert_close(logits, expected_logits, rtol=1e-3, atol=1e-4)
    assert torch.equal(tokens, expected_tokens)

    digest = hashlib.sha256(tokens.numpy().tobytes() + logits.numpy().tobytes()).hexdigest()
    print(
        f"rank={dist.get_rank()} of {dist.get_world_size()} steps={options.tokens} outputs={digest}\n",
        end="",
        flush=True,
    )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
