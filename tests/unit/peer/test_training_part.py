"""Without torch, one line says what to install; looking for it does not load it."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from peer import training_part
from peer.training_part import example_file, require_training_part
from swarm.errors import FailureError, LocalError


def test_what_is_missing_is_one_line_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    require_training_part()
    for missing in ("torch", "safetensors"):
        monkeypatch.setattr(
            importlib.util, "find_spec", lambda name, missing=missing: None if name == missing else 1
        )
        with pytest.raises(FailureError) as failure:
            require_training_part()
        assert str(failure.value) == 'install the training part: pip install "fusion-swarm[peer]"'


def test_the_look_does_not_load_torch() -> None:
    script = (
        "import sys; from peer.training_part import *; require_training_part(); print('torch' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout == "False\n"


def test_examples_come_from_the_installation_or_from_the_clone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "clone" / "peer"
    monkeypatch.setattr(training_part, "__file__", str(package / "training_part.py"))
    with pytest.raises(LocalError):
        example_file("gpt")
    for folder in (tmp_path / "clone" / "examples", package / "examples"):
        folder.mkdir(parents=True)
        (folder / "gpt.py").write_text("")
        assert example_file("gpt") == folder / "gpt.py"
