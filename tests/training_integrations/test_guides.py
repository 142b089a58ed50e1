"""The guides for trainers: their blocks run."""

import os
import sys
from pathlib import Path

import pytest

if "IRTCAT_TRAINING" not in os.environ:
    pytest.skip("PyTorch and its trainers: make test-training", allow_module_level=True)

DOCS = Path(__file__).parents[2] / "docs"
sys.path.insert(0, str(DOCS / "tools"))
import blocks as code  # noqa: E402


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("name", ["fine-tuning-set", "pytorch"])
def test_the_blocks_of_a_guide_run(name, tmp_path):
    page = code.Page(f"{name}.md", tmp_path)
    found = list(code.find_blocks((DOCS / "guides" / f"{name}.md").read_text(encoding="utf-8")))
    assert not [missing for block in found for missing in block.missing]
    outputs = [page.run(block) for block in found]
    assert any(output.text for output in outputs if output)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_grain_takes_the_indices_of_a_filter():
    """Shuffled and batched by grain, in two shares."""
    import grain
    import numpy as np

    from irtcat import ItemBank
    from irtcat.training import filters

    kept = filters.apply(ItemBank.from_parameters(b=np.linspace(-2, 2, 40)), "avi", keep=20)
    data = np.arange(40) * 10
    whole = grain.MapDataset.source(kept.indices.tolist()).shuffle(seed=1)
    shares = [list(whole[rank::2].map(lambda k: data[k]).batch(5)) for rank in (0, 1)]
    assert [len(share) for share in shares] == [2, 2]
    seen = np.concatenate([batch for share in shares for batch in share])
    assert sorted(seen) == (kept.indices * 10).tolist()
