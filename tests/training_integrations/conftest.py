"""Tests that run PyTorch and what is built on it: ``make test-training`` (IRTCAT_TRAINING=1).

Nothing is downloaded: models are made from configurations, tokenizers from a list of characters.
"""

import os

import pytest

os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", TOKENIZERS_PARALLELISM="false")

CHARACTERS = "0123456789+-= abc"
SPECIAL = ["<pad>", "<bos>", "<eos>", "<unk>"]


@pytest.fixture(autouse=True)
def one_thread():
    """The tests share the cores with each other."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tokenizer():
    """One token for each character."""
    from tokenizers import Tokenizer, decoders, models
    from transformers import PreTrainedTokenizerFast

    vocabulary = {token: k for k, token in enumerate([*SPECIAL, *CHARACTERS])}
    characters = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token="<unk>"))
    characters.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=characters,
        padding_side="left",
        pad_token="<pad>",
        bos_token="<bos>",
        eos_token="<eos>",
        unk_token="<unk>",
    )


@pytest.fixture
def model():
    """A language model with a few thousand random weights."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(SPECIAL) + len(CHARACTERS),
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=2,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
            max_position_embeddings=64,
        )
    )
