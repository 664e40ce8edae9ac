"""export_dataset: what it writes, read back, and what it refuses."""

import json
import pathlib
import tempfile
import unittest

import numpy

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


class DatasetTest(unittest.TestCase):
    def export(self, data, **options):
        with tempfile.TemporaryDirectory() as folder:
            parcae_model.export_dataset(data, folder, **options)
            return read(folder)

    def test_columns_of_several_types(self):
        count = 2500  # more than are written at once
        ids = [[i % 300, 7, 40000] for i in range(count)]
        mask = [[True, True, i % 2 == 0] for i in range(count)]
        labels = [-100 if i == 1700 else i % 5 for i in range(count)]
        for data in (Columns({"input_ids": ids, "mask": mask, "labels": labels, "text": ["x"] * count}),
                     [{"input_ids": a, "mask": b, "labels": c} for a, b, c in zip(ids, mask, labels)]):
            said, samples = self.export(data, inputs=("input_ids", "mask"))
            self.assertEqual(said["samples"], count)
            self.assertEqual([c["type"] for c in said["inputs"]], ["uint16", "uint8"])
            self.assertEqual(said["targets"], {"name": "labels", "type": "int32", "shape": []})
            self.assertEqual(samples["input_ids"].tolist(), ids)
            self.assertEqual(samples["mask"].tolist(), [[int(x) for x in row] for row in mask])
            self.assertEqual(samples["targets"].tolist(), labels)

    def test_shifted_labels(self):
        _, samples = self.export([{"input_ids": [1, 2, 3], "labels": [1, 2, 3]}], shift=True)
        self.assertEqual(samples["targets"].tolist(), [[2, 3, -100]])
        _, samples = self.export([{"tokens": [1, 2, 300]}], inputs=("tokens",), targets="tokens", shift=True)
        self.assertEqual(samples["tokens"].tolist(), [[1, 2, 300]])
        self.assertEqual(samples["targets"].tolist(), [[2, 300, -100]])

    def test_images(self):
        data = [{"image": Image(30, 20, (1, 2, 3)), "label": 0}, {"image": Image(20, 50, (4, 5, 6)), "label": 1}]
        said, samples = self.export(data, inputs=("image",), targets="label", size=8)
        self.assertEqual(said["inputs"], [{"name": "image", "type": "uint8", "shape": [3, 8, 8]}])
        self.assertEqual(samples["image"][1, :, 3, 3].tolist(), [4, 5, 6])

    def test_refusals(self):
        good = {"input_ids": [1, 2], "labels": 0}
        for data, why in (([], "no samples"), ([good, {"labels": 0}], 'sample 1 has no column "input_ids"'),
                          ([good, {"input_ids": [1], "labels": 0}],
                           "sample 1: input_ids has the extents [1], in sample 0 [2]"),
                          ([good, {"input_ids": [0.5, 1], "labels": 0}], "sample 1: input_ids is float64"),
                          ([{"input_ids": [[1], [1, 2]], "labels": 0}], "rows are of several lengths")):
            with self.subTest(why), self.assertRaises(parcae_model.CannotExport) as caught:
                self.export(data)
            self.assertIn(why, str(caught.exception))
            self.assertNotIn("\n", str(caught.exception))


@unittest.skipUnless(datasets, "Hugging Face's datasets is not installed")
class HuggingFaceTest(unittest.TestCase):
    """The same by the library itself: tokenised by map, formatted, shuffled, read from its cache on the disk."""

    export = DatasetTest.export

    def test_mapped_and_shuffled(self):
        texts = [f"line {i} of some text" for i in range(2500)]
        data = datasets.Dataset.from_dict({"text": texts, "label": [i % 3 for i in range(2500)]})
        data = data.map(lambda x: {"input_ids": list(x["text"].encode()[:12].ljust(12)), "attention_mask": [1] * 12})
        data = data.shuffle(seed=3)
        wanted = [(list(x["text"].encode()[:12].ljust(12)), x["label"]) for x in data]
        for form in (None, "numpy", "torch"):
            _, samples = self.export(data.with_format(form), inputs=("input_ids", "attention_mask"), targets="label")
            self.assertEqual([(a.tolist(), int(b)) for a, b in zip(samples["input_ids"], samples["targets"])], wanted)
            self.assertEqual(samples["attention_mask"].min(), 1)

    def test_from_disk(self):
        with tempfile.TemporaryDirectory() as folder:
            rows = [[i, i + 1, 70000] for i in range(1200)]
            datasets.Dataset.from_dict({"input_ids": rows, "labels": rows}).save_to_disk(folder)
            said, samples = self.export(datasets.load_from_disk(folder), shift=True)
        self.assertEqual(said["inputs"][0]["type"], "int32")
        self.assertEqual(samples["input_ids"].tolist(), rows)
        self.assertEqual(samples["targets"].tolist(), [[b, c, -100] for _, b, c in rows])

    def test_its_images(self):
        pictures = [PIL.Image.new("RGB", (30, 20), (1, 2, 3)), PIL.Image.new("L", (20, 50), 9)]
        features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["a", "b"])})
        data = datasets.Dataset.from_dict({"image": pictures, "label": [0, 1]}, features=features)
        _, samples = self.export(data, inputs=("image",), targets="label", size=8)
        self.assertEqual(samples["image"][:, :, 3, 3].tolist(), [[1, 2, 3], [9, 9, 9]])
        self.assertEqual(samples["targets"].tolist(), [0, 1])

    def test_its_refusals(self):
        data = datasets.Dataset.from_dict({"input_ids": [[1, 2], [1, 2, 3]], "labels": [0, 1]})
        with self.assertRaises(parcae_model.CannotExport) as caught:
            self.export(data)
        self.assertIn("sample 1: input_ids has the extents [3], in sample 0 [2]", str(caught.exception))


if __name__ == "__main__":
    unittest.main()
