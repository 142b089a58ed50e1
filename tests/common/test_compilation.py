"""Compiled functions: as a program of their own, within others, and without the settings."""

import jax
import jax.numpy as jnp
import pytest

from irtcat._common import compilation


@pytest.fixture
def doubled():
    return compilation.jit(lambda x, n=2: n * x, static_argnames=("n",))


def test_alone_and_within_others(doubled):
    x = jnp.arange(3.0)
    assert doubled(x).tolist() == [0, 2, 4]
    assert doubled(x, n=3).tolist() == [0, 3, 6]
    assert jax.jit(lambda x: doubled(x) + 1)(x).tolist() == [1, 3, 5]
    assert jax.vmap(doubled)(x).tolist() == [0, 2, 4]
    assert jax.grad(lambda x: doubled(x).sum())(x).tolist() == [2, 2, 2]
    assert doubled._cache_size() >= 2


def test_a_version_without_the_settings_compiles_without_them(monkeypatch):
    monkeypatch.setattr(compilation, "_unsupported", [])
    function = compilation.jit(lambda x: x + 1, options={"xla_no_such_setting": True})
    assert not compilation._unsupported
    assert float(function(1.0)) == 2.0
    assert float(function(2.0)) == 3.0
    assert compilation._unsupported == [jax.__version__]


def test_errors_of_the_function_are_its_own(doubled):
    with pytest.raises(TypeError):
        doubled("text")
    with pytest.raises(TypeError):
        doubled()
