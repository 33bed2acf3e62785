"""From the embedded model's GGUF file to a folder that transformers loads, as a program of its own."""

from __future__ import annotations

import sys
from pathlib import Path


def convert(gguf: Path, target: Path) -> None:
    """Write the weights of ``gguf``, dequantized to fp32, and its tokenizer into the new folder ``target``."""
    import torch
    from tokenizers import pre_tokenizers
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder, file = gguf.parent, gguf.name
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, dtype=torch.float32, local_files_only=True)
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=file, local_files_only=True)
    # save_pretrained refuses while these say that the weights are GGUF, which they no longer are.
    del model.hf_quantizer
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    # The model learned numbers digit by digit. transformers loses that part of the GGUF tokenizer ("smollm").
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
