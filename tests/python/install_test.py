"""Both packages install into an environment that has nothing but PyTorch; parcae_model exports from there."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest
import torch

PACKAGE = pathlib.Path(__file__).resolve().parents[2] / "deploy" / "python"

EXPORT = """
import sys, torch, parcae, parcae_model
from importlib import metadata
from packaging.requirements import Requirement
model = torch.nn.Sequential(torch.nn.Embedding(16, 8), torch.nn.Linear(8, 16))
parcae_model.export(model, torch.zeros(2, 4, dtype=torch.int64), sys.argv[1])
print(parcae_model.__file__)
print(parcae.__file__)
for x in map(Requirement, metadata.requires("parcae-model")):
    if x.marker.evaluate():
        print(f"{x.name}{x.specifier}", metadata.version(x.name) in x.specifier)
"""

# As an older Python would come to it.
OLDER = """
import sys
sys.version_info = (3, 9, 2, "final", 0)
import parcae_model
"""


# given: a fresh virtual environment that sees this test's PyTorch, no index of packages / expected: pip builds and
# installs the package with all its files; what that requires is there, PyTorch in this version among it; export()
# works and parcae is there, typed, with nothing of this checkout on the path; pip takes it on Python 3.9, where
# parcae_model says in a line what it needs. (pip does not look for requirements itself: it would want those of
# PyTorch, which are CUDA's libraries.)
def test_installs_by_pip(tmp_path):
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PIP_"))}

    def run(*command, **variables):
        done = subprocess.run(list(map(str, command)), env={**clean, **{k: str(v) for k, v in variables.items()}},
                              cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done

    run(sys.executable, "-m", "venv", "--without-pip", "venv")
    python = tmp_path / "venv" / "bin" / "python"
    packages = next((tmp_path / "venv" / "lib").glob("python3*/site-packages"))
    (packages / "torch.pth").write_text(str(pathlib.Path(torch.__file__).parents[1]) + "\n")
    source = tmp_path / "source"  # a build writes into it
    shutil.copytree(PACKAGE, source, ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
    # Built by the setuptools that deploy/setup brings: an environment of its own for that would have to be downloaded.
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-index", "--disable-pip-version-check",
        "--no-build-isolation", "--no-deps", source, PYTHONPATH=pathlib.Path(pytest.__file__).parents[1])
    said = run(python, "-c", EXPORT, tmp_path / "model").stdout.splitlines()
    assert all(pathlib.Path(x).is_relative_to(packages) for x in said[:2]), said
    assert (packages / "parcae" / "py.typed").exists()
    assert f"torch=={torch.__version__.split('+')[0]} True" in said[2:]
    assert all(x.endswith(" True") for x in said[2:]), said
    assert json.loads((tmp_path / "model" / "model.json").read_text())["format"] == "parcae.exported_model"
    metadata, = packages.glob("parcae_model-*.dist-info/METADATA")
    assert "Requires-Python: >=3.9\n" in metadata.read_text()
    older = subprocess.run([python, "-c", OLDER], env=clean, cwd=tmp_path, capture_output=True, text=True)
    assert older.returncode != 0
    assert older.stderr.splitlines()[-1].endswith("needs Python 3.10 or newer, as PyTorch 2.11.0 does; this is 3.9")
