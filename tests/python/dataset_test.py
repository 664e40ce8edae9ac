"""export_dataset: what it writes, read back, and what it refuses."""

import json
import pathlib

import numpy
import pytest

import parcae_model

try:  # deploy/setup installs it
    import datasets
    import PIL.Image
except ImportError:
    datasets = None


class Image:
    """As PIL's: of one colour."""

    def __init__(self, width, height, colour):
        self.size, self.colour = (width, height), colour

    def convert(self, mode):
        assert mode == "RGB"
        return self

    def resize(self, size):
        return Image(*size, self.colour)

    def crop(self, box):
        return Image(box[2] - box[0], box[3] - box[1], self.colour)

    def __array__(self, dtype=None, copy=None):
        return numpy.broadcast_to(numpy.array(self.colour, numpy.uint8), (self.size[1], self.size[0], 3))


class Columns:
    """As Hugging Face's Dataset: a part of it is a dictionary of lists."""

    def __init__(self, columns):
        self.columns = columns

    def __len__(self):
        return len(next(iter(self.columns.values())))

    def __getitem__(self, part):
        return {name: x[part] for name, x in self.columns.items()}


def read(folder):
    said = json.loads((pathlib.Path(folder) / "samples.json").read_text())
    kinds = [(c["name"], numpy.dtype(c["type"]).newbyteorder("<"), tuple(c["shape"])) for c in said["inputs"]]
    kinds.append(("targets", numpy.dtype(said["targets"]["type"]).newbyteorder("<"), tuple(said["targets"]["shape"])))
    samples = numpy.fromfile(pathlib.Path(folder) / "samples.bin", dtype=numpy.dtype(kinds))
    return said, samples


@pytest.fixture
def export(tmp_path):
    def run(data, **options):
        parcae_model.export_dataset(data, tmp_path / "exported", **options)
        return read(tmp_path / "exported")
    return run


def test_columns_of_several_types(export):
    count = 2500  # more than are written at once
    ids = [[i % 300, 7, 40000] for i in range(count)]
    mask = [[True, True, i % 2 == 0] for i in range(count)]
    labels = [-100 if i == 1700 else i % 5 for i in range(count)]
    for data in (Columns({"input_ids": ids, "mask": mask, "labels": labels, "text": ["x"] * count}),
                 [{"input_ids": a, "mask": b, "labels": c} for a, b, c in zip(ids, mask, labels)]):
        said, samples = export(data, inputs=("input_ids", "mask"))
        assert said["samples"] == count
        assert [c["type"] for c in said["inputs"]] == ["uint16", "uint8"]
        assert said["targets"] == {"name": "labels", "type": "int32", "shape": []}
        assert samples["input_ids"].tolist() == ids
        assert samples["mask"].tolist() == [[int(x) for x in row] for row in mask]
        assert samples["targets"].tolist() == labels


def test_shifted_labels(export):
    _, samples = export([{"input_ids": [1, 2, 3], "labels": [1, 2, 3]}], shift=True)
    assert samples["targets"].tolist() == [[2, 3, -100]]
    _, samples = export([{"tokens": [1, 2, 300]}], inputs=("tokens",), targets="tokens", shift=True)
    assert samples["tokens"].tolist() == [[1, 2, 300]]
    assert samples["targets"].tolist() == [[2, 300, -100]]


def test_images(export):
    data = [{"image": Image(30, 20, (1, 2, 3)), "label": 0}, {"image": Image(20, 50, (4, 5, 6)), "label": 1}]
    said, samples = export(data, inputs=("image",), targets="label", size=8)
    assert said["inputs"] == [{"name": "image", "type": "uint8", "shape": [3, 8, 8]}]
    assert samples["image"][1, :, 3, 3].tolist() == [4, 5, 6]


GOOD = {"input_ids": [1, 2], "labels": 0}


@pytest.mark.parametrize("data, why", [
    ([], "no samples"), ([GOOD, {"labels": 0}], 'sample 1 has no column "input_ids"'),
    ([GOOD, {"input_ids": [1], "labels": 0}], "sample 1: input_ids has the extents [1], in sample 0 [2]"),
    ([GOOD, {"input_ids": [0.5, 1], "labels": 0}], "sample 1: input_ids is float64"),
    ([{"input_ids": [[1], [1, 2]], "labels": 0}], "rows are of several lengths")])
def test_refusals(export, data, why):
    with pytest.raises(parcae_model.CannotExport) as caught:
        export(data)
    assert why in str(caught.value)
    assert "\n" not in str(caught.value)


# The same by the library itself: tokenised by map, formatted, shuffled, read from its cache on the disk.
needs_datasets = pytest.mark.skipif(datasets is None, reason="Hugging Face's datasets is not installed")


@needs_datasets
def test_mapped_and_shuffled(export):
    texts = [f"line {i} of some text" for i in range(2500)]
    data = datasets.Dataset.from_dict({"text": texts, "label": [i % 3 for i in range(2500)]})
    data = data.map(lambda x: {"input_ids": list(x["text"].encode()[:12].ljust(12)), "attention_mask": [1] * 12})
    data = data.shuffle(seed=3)
    wanted = [(list(x["text"].encode()[:12].ljust(12)), x["label"]) for x in data]
    for form in (None, "numpy", "torch"):
        _, samples = export(data.with_format(form), inputs=("input_ids", "attention_mask"), targets="label")
        assert [(a.tolist(), int(b)) for a, b in zip(samples["input_ids"], samples["targets"])] == wanted
        assert samples["attention_mask"].min() == 1


@needs_datasets
def test_from_disk(export, tmp_path):
    rows = [[i, i + 1, 70000] for i in range(1200)]
    datasets.Dataset.from_dict({"input_ids": rows, "labels": rows}).save_to_disk(tmp_path / "data")
    said, samples = export(datasets.load_from_disk(tmp_path / "data"), shift=True)
    assert said["inputs"][0]["type"] == "int32"
    assert samples["input_ids"].tolist() == rows
    assert samples["targets"].tolist() == [[b, c, -100] for _, b, c in rows]


@needs_datasets
def test_its_images(export):
    pictures = [PIL.Image.new("RGB", (30, 20), (1, 2, 3)), PIL.Image.new("L", (20, 50), 9)]
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["a", "b"])})
    data = datasets.Dataset.from_dict({"image": pictures, "label": [0, 1]}, features=features)
    _, samples = export(data, inputs=("image",), targets="label", size=8)
    assert samples["image"][:, :, 3, 3].tolist() == [[1, 2, 3], [9, 9, 9]]
    assert samples["targets"].tolist() == [0, 1]


@needs_datasets
def test_its_refusals(export):
    data = datasets.Dataset.from_dict({"input_ids": [[1, 2], [1, 2, 3]], "labels": [0, 1]})
    with pytest.raises(parcae_model.CannotExport) as caught:
        export(data)
    assert "sample 1: input_ids has the extents [3], in sample 0 [2]" in str(caught.value)
