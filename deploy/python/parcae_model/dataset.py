"""export_dataset(): a data set as a folder that Parcae trains on (data.kind = "columns")."""

import json
import pathlib

import numpy

from .errors import CannotExport

TYPES = ("uint8", "uint16", "int32", "uint32", "int64")
BATCH = 1000


def export_dataset(dataset, folder, *, inputs=("input_ids",), targets="labels", shift=False, size=None):
    """Writes `folder`: samples.bin, all samples one after the other, and samples.json, which says what is in one.
    Returns what samples.json says.

    dataset  a Dataset of Hugging Face, or a list of dictionaries; every sample has the same extents (pad, or cut, when
             you tokenise). Columns are whole numbers, or images (PIL), which become red, green and blue, 0 to 255.
    inputs   columns that a model takes: first tokens or pixels, then others by the names it has for them
    targets  the column to be predicted: a label for each sample, or one for each token; -100 is left out of the loss
    shift    of one for each token: predict the next one, as causal language models of Hugging Face do with labels that
             are the tokens themselves. Parcae's models do not shift.
    size     of images: the shorter side is resized to it, and the square in the middle kept
    Raises CannotExport: one line.
    """
    if len(dataset) == 0:
        raise CannotExport("the data set has no samples")
    writer = _Writer([*((name, False) for name in inputs), (targets, shift)], size)
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "samples.bin", "wb") as file:
        types = writer.find_types(dataset)
        for first in range(0, len(dataset), BATCH):
            file.write(writer.bytes_of(writer.batch(dataset, first), types))
    columns = [{"name": name, "type": t.__name__, "shape": list(shape)}
               for (name, _), t, shape in zip(writer.columns, types, writer.shapes)]
    description = {"format": "parcae.samples", "version": 1, "samples": len(dataset), "inputs": columns[:-1],
                   "targets": columns[-1]}
    (folder / "samples.json").write_text(json.dumps(description, indent=1) + "\n")
    return description


class _Writer:
    def __init__(self, columns, size):
        self.columns, self.size = columns, size  # names, and whether they are shifted; the last one is the target
        self.shapes = [None] * len(columns)

    def batch(self, dataset, first):
        """Some samples: for each column a list of arrays."""
        last = min(first + BATCH, len(dataset))
        part = dataset[first:last]
        if not isinstance(part, dict):  # as Hugging Face's are
            part = {name: [x[name] for x in part if name in x] for name, _ in self.columns}
        result = []
        for number, (name, _) in enumerate(self.columns):
            values = part.get(name, ())
            if len(values) != last - first:
                raise CannotExport(f'sample {first + len(values)} has no column "{name}"')
            result.append([self.array(number, x, first + i) for i, x in enumerate(values)])
        return result

    def array(self, column, x, number):
        name, shifted = self.columns[column]
        if hasattr(x, "convert") and hasattr(x, "resize"):
            x = self.pixels(x)
        try:
            x = numpy.asarray(x)
        except ValueError:
            raise CannotExport(f"sample {number}: {name} is no array: its rows are of several lengths") from None
        if x.dtype == bool:
            x = x.astype(numpy.uint8)
        if not numpy.issubdtype(x.dtype, numpy.integer):
            raise CannotExport(f"sample {number}: {name} is {x.dtype}, not whole numbers")
        if shifted:
            if x.ndim != 1:
                raise CannotExport(f"sample {number}: {name} has {x.ndim} dimensions; what is shifted has one")
            x = numpy.append(x[1:].astype(numpy.int64), -100)
        self.shapes[column] = self.shapes[column] or x.shape
        if x.shape != self.shapes[column]:
            raise CannotExport(f"sample {number}: {name} has the extents {list(x.shape)}, in sample 0 "
                               f"{list(self.shapes[column])}; pad or cut all to the same")
        return x

    def pixels(self, image):
        image = image.convert("RGB")
        if self.size is not None:
            width, height = image.size
            scale = self.size / min(width, height)
            image = image.resize((max(self.size, round(width * scale)), max(self.size, round(height * scale))))
            left, top = (image.size[0] - self.size) // 2, (image.size[1] - self.size) // 2
            image = image.crop((left, top, left + self.size, top + self.size))
        return numpy.asarray(image).transpose(2, 0, 1)

    def find_types(self, dataset):
        """The smallest type that each column fits into."""
        ends = [(0, 0)] * len(self.columns)
        for first in range(0, len(dataset), BATCH):
            for i, values in enumerate(self.batch(dataset, first)):
                low, high = min(int(x.min()) for x in values), max(int(x.max()) for x in values)
                ends[i] = min(low, ends[i][0]), max(high, ends[i][1])
        fits = lambda t, low, high: numpy.iinfo(t).min <= low and high <= numpy.iinfo(t).max
        return [next(t for t in (getattr(numpy, x) for x in TYPES) if fits(t, *x)) for x in ends]

    @staticmethod
    def bytes_of(columns, types):
        rows = [numpy.stack(values).astype(numpy.dtype(t).newbyteorder("<")) for values, t in zip(columns, types)]
        return numpy.concatenate([x.reshape(len(x), -1).view(numpy.uint8) for x in rows], axis=1).tobytes()
