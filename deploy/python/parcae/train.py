"""The whole way in one call. Needs what parcae_model needs: PyTorch and safetensors."""

from __future__ import annotations

import os
import pathlib
import shutil
import tempfile
from typing import Any, Callable, Mapping, Optional, Sequence, Union

from .client import Cluster, Error, Job, Point, connect


def train(model: Any, example: Any, *, data: Mapping[str, Any], steps: int, layers: Optional[Sequence[Any]] = None,
          cluster: Optional[Cluster] = None, folder: Union[str, os.PathLike[str], None] = None,
          on_point: Optional[Callable[[Point], None]] = None, export: Optional[Mapping[str, Any]] = None,
          **sections: Mapping[str, Any]) -> Job:
    """Trains `model` on the cluster and loads what was learnt back into it. Returns the job, which is done.

    model      an nn.Module: an nn.Sequential, a model of Hugging Face, or, with `layers`, any that is a list of layers
    example    one batch of two samples or more, as parcae_model.export takes it
    data       the job's section [data]: {"kind": "text", "path": "/data/books"}; paths are those of the nodes
    steps      how many
    cluster    default: connect()
    folder     where the exported model lies for the nodes: a path that they have, too. Default: one that is made on
               this machine and removed in the end, for nodes of this machine.
    on_point   called with each Point of job.follow()
    export     more arguments of parcae_model.export: {"loss": "mean_squared_error"}
    sections   more of the job: batch={"global": 64}, optimizer={"kind": "adamw"}, job={"seed": 1}
    Raises Error, or parcae_model.CannotExport; the model is as it was then.
    """
    import parcae_model
    from safetensors.torch import load_model

    cluster = cluster or connect()
    scratch = pathlib.Path(tempfile.mkdtemp(prefix="parcae-"))
    try:
        if folder is None:
            scratch.chmod(0o755)  # nodes may be another user's
            folder = scratch / "model"
        parts: Any = model if layers is None else list(layers)
        names = {} if layers is None else {"names_from": model}
        parcae_model.export(parts, example, folder, **names, **(export or {}))
        job = cluster.submit({**sections,
                              "job": {**sections.get("job", {}), "steps": steps},
                              "model": {"kind": "exported", "path": str(folder)},
                              "data": data},
                             name=type(model).__name__.lower())
        for point in job.follow():
            if on_point:
                on_point(point)
        trained = job.save(scratch / "trained.safetensors")
        missing, unexpected = load_model(model, trained, strict=False)
        # How many batches a BatchNorm saw is not kept.
        missing = [x for x in missing if not x.endswith("num_batches_tracked")]
        if missing or unexpected:
            raise Error(f"job {job.number} has other parameters than this model: {[*missing, *unexpected][:3]}")
        return job
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
