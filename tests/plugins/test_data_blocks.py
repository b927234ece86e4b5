"""Every data block: what an example holds, splits, digests, and the errors of wrong files."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from scellis_datasets import arrays, csv, digits, image_folder, text

from scellis_core.plugin import DataContext, DataError, InputSpec


def same_spec(block: Any, params: Any, ctx: DataContext) -> Any:
    """Open; what it says of itself must be what ``describe`` said."""
    data = block.open(params, ctx)
    assert block.describe(params, ctx) == data.spec
    for split, size in data.spec.sizes.items():
        batch = data.batch(split, np.arange(size))
        for name, spec in {**data.spec.inputs, **data.spec.targets}.items():
            assert batch[name].shape == (size, *spec.shape)
            assert batch[name].dtype == {"f32": np.float32, "i32": np.int32}[spec.dtype]
            if spec.limit is not None:
                assert batch[name].min() >= 0
                assert batch[name].max() < spec.limit
    return data


# -- digits --------------------------------------------------------------------------------------------------
def test_digits(tmp_path: Path) -> None:
    ctx = DataContext(tmp_path)
    data = same_spec(digits.DIGITS, digits.DigitsParams(split={"val": 0.2, "test": 0.1}), ctx)
    assert data.spec.sizes == {"train": 1258, "val": 359, "test": 180}
    rows = np.concatenate(list(data.rows.values()))
    assert sorted(rows) == list(range(1797))
    x = data.arrays["x"]
    assert (x.min(), x.max()) == (0.0, 1.0)
    np.testing.assert_array_equal(x[0, :8] * 16, [0, 0, 5, 13, 9, 1, 0, 0])
    assert np.bincount(data.arrays["y"]).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]


def test_digits_as_images_and_split_seeds(tmp_path: Path) -> None:
    flat = digits.DIGITS.open(digits.DigitsParams(), DataContext(tmp_path))
    image = same_spec(digits.DIGITS, digits.DigitsParams(layout="image"), DataContext(tmp_path, seed=5))
    np.testing.assert_array_equal(image.arrays["x"].reshape(1797, 64), flat.arrays["x"])
    np.testing.assert_array_equal(image.rows["val"], flat.rows["val"])
    other = digits.DIGITS.open(digits.DigitsParams(split_seed=1), DataContext(tmp_path))
    assert not np.array_equal(other.rows["val"], flat.rows["val"])
    assert image.digest == flat.digest == digits.DIGEST
    with pytest.raises(DataError, match="expected a dataset of text, got one of arrays; try data/text"):
        flat.encode("7")


@pytest.mark.parametrize(
    ("split", "message"),
    [
        ({"train": 0.5}, "must not name train"),
        ({"val": 0.6, "test": 0.4}, "sum to less than 1"),
        ({"val": 0.0}, "between"),
    ],
)
def test_wrong_split(split: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        digits.DigitsParams(split=split)


def test_empty_split(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"data\.split: expected at least one example in val, got 0 of 1797"):
        digits.describe(digits.DigitsParams(split={"val": 1e-5}), DataContext(tmp_path))


# -- text ----------------------------------------------------------------------------------------------------
def test_text_bytes(tmp_path: Path) -> None:
    content = bytes(range(100))
    (tmp_path / "t.txt").write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    params = text.TextParams(path="t.txt", sha256=digest, context=4, stride=3, split={"val": 0.2})
    data = same_spec(text.TEXT, params, DataContext(tmp_path))
    assert data.digest == digest
    assert data.spec.vocab_size == 256
    assert data.spec.sizes == {"train": 26, "val": 6}
    batch = data.batch("train", np.array([0, 25]))
    np.testing.assert_array_equal(batch["x"], [[0, 1, 2, 3], [75, 76, 77, 78]])
    np.testing.assert_array_equal(batch["y"], [[1, 2, 3, 4], [76, 77, 78, 79]])
    np.testing.assert_array_equal(data.batch("val", np.array([0]))["x"], [[80, 81, 82, 83]])
    assert data.decode(data.encode("h\u00e9")) == "h\u00e9"
    assert data.decode([0xC3]) == "\ufffd"
    with pytest.raises(DataError, match="id position 1: expected an id from 0 to 255, got 256"):
        data.decode([1, 256])


def test_text_characters(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("b\u00e9ba" * 10, encoding="utf-8")
    params = text.TextParams(path="t.txt", tokens="char", context=4, split={"val": 0.3})
    data = same_spec(text.TEXT, params, DataContext(tmp_path))
    assert data.spec.vocab_size == 3
    assert data.encode("ab\u00e9") == [0, 1, 2]
    assert data.decode([2, 0]) == "\u00e9a"
    with pytest.raises(DataError) as error:
        data.encode("abz")
    assert str(error.value) == (
        "data: text position 2: expected one of the 3 characters of the training text, got 'z'; "
        "try those characters only, or a run whose data has tokens: byte"
    )


def test_text_errors(tmp_path: Path) -> None:
    ctx = DataContext(tmp_path, where="run.sml:9:1 data")
    path = tmp_path / "t.txt"
    with pytest.raises(DataError) as error:
        text.describe(text.TextParams(path="t.txt"), ctx)
    assert str(error.value) == (
        f"run.sml:9:1 data.path: expected a file at {path}, got nothing there; "
        f"try a path relative to {tmp_path}, or a full one"
    )
    path.write_bytes(b"one\ntwo \xff" + b"." * 100)
    wrong = "0" * 64
    with pytest.raises(DataError) as error:
        text.open(text.TextParams(path="t.txt", sha256=wrong, context=4), ctx)
    assert f"data.sha256: expected {wrong} for {path}, got {hashlib.sha256(path.read_bytes()).hexdigest()}" in str(
        error.value
    )
    with pytest.raises(DataError, match=r"t.txt:2: expected UTF-8 text, got byte 0xff at 8; try tokens: byte"):
        text.describe(text.TextParams(path="t.txt", tokens="char", context=4), ctx)
    with pytest.raises(DataError, match=r"expected more than context = 64 tokens in val, got 11 of 109"):
        text.describe(text.TextParams(path="t.txt"), ctx)


# -- csv -----------------------------------------------------------------------------------------------------
ROWS = "id,a,b,kind\n" + "".join(f"row{i},{i},{i * i % 7},{('x', 'y', 'z')[i % 3]}\n" for i in range(20))


def test_csv_classes(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(ROWS)
    params = csv.CsvParams(path="t.csv", target="kind", task="classification", ignore=("id",), normalise=True)
    data = same_spec(csv.CSV, params, DataContext(tmp_path))
    assert data.spec.inputs["x"] == InputSpec((2,))
    assert data.spec.classes == ("x", "y", "z")
    train = data.arrays["x"][data.rows["train"]]
    np.testing.assert_allclose(train.mean(axis=0), 0.0, atol=1e-6)
    np.testing.assert_allclose(train.std(axis=0), 1.0, atol=1e-6)
    np.testing.assert_array_equal(data.arrays["y"][:4], [0, 1, 2, 0])
    assert data.digest == hashlib.sha256(ROWS.encode()).hexdigest()


def test_csv_numbers(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("\ufeffa;y\n" + "".join(f"{i};{i / 2}\n" for i in range(10)), encoding="utf-8")
    params = csv.CsvParams(path="t.csv", target="y", task="regression", delimiter=";", split={"val": 0.5})
    data = same_spec(csv.CSV, params, DataContext(tmp_path))
    assert data.spec.targets["y"] == InputSpec((1,))
    np.testing.assert_array_equal(data.arrays["y"][:, 0] * 2, data.arrays["x"][:, 0])


def test_csv_class_order_is_numeric(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,y\n" + "".join(f"{i},{n}\n" for i, n in enumerate([10, 9, 2, 10, 2])))
    params = csv.CsvParams(path="t.csv", target="y", task="classification")
    assert csv.describe(params, DataContext(tmp_path)).classes == ("2", "9", "10")


CSV_ERRORS = {
    "missing": ("a,y\n1,0\n,1\n", ":3: expected a number in column 'a', got nothing; try removing the row"),
    "text": (
        "a,y\n1,0\nred,1\n",
        ":3: expected a finite number in column 'a', got 'red'; try removing the row",
    ),
    "nan": ("a,y\nnan,0\n", ":2: expected a finite number in column 'a', got 'nan'"),
    "short": ("a,y\n1\n", ":2: expected 2 values, as in the first line, got 1"),
    "target": ("a,b\n1,2\n", ":1: expected a column named 'y', got 2 others; try one of: a, b"),
    "no target": ("a,y\n1, \n", ":2: expected a value in target column 'y', got nothing"),
    "twice": ("a,a,y\n1,2,3\n", ":1: expected column names that differ, got 'a' 2 times"),
    "no rows": ("a,y\n", ": expected rows of data after the first line, got none"),
    "nothing": ("", ":1: expected a first line that names the columns, got nothing; try a line such as a,b,kind"),
    "other delimiter": ("a;y\n1;2\n", ":1: expected a column named 'y', got one other; try delimiter: \";\""),
    "binary": ("\x01\x02\n", ":1: expected names of columns, as text, got control characters; try a CSV file"),
    "f32": ("a,y\n1e39,0\n", ":2: expected a number that f32 holds in column 'a', got '1e39'; try removing"),
    "class": (
        "a,y\n1,red\n",
        ":2: expected a finite number in column 'y', got 'red'; try removing the row, filling in a number, or "
        "task: classification",
    ),
    "open quote": ('a,y\n1,2\n"3,4\n', ":3: expected CSV, got unexpected end of data; try closing the quote"),
    "no features": ("y\n1\n", ":1: expected at least one feature column, got none"),
}


@pytest.mark.parametrize("case", CSV_ERRORS)
def test_csv_errors(tmp_path: Path, case: str) -> None:
    content, message = CSV_ERRORS[case]
    (tmp_path / "t.csv").write_text(content)
    with pytest.raises(DataError) as error:
        csv.open(csv.CsvParams(path="t.csv", target="y", task="regression"), DataContext(tmp_path))
    assert str(error.value).startswith(f"{tmp_path / 't.csv'}{message}")


def test_csv_that_is_no_utf8_names_the_line(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b"a,y\n" + b"1,2\n" * 5000 + b"1,\xe9\n")
    with pytest.raises(DataError) as error:
        csv.describe(csv.CsvParams(path="t.csv", target="y", task="classification"), DataContext(tmp_path))
    assert str(error.value) == (
        f"{tmp_path / 't.csv'}:5002: expected UTF-8 text, got byte 0xe9 at 20006; try saving the file as UTF-8"
    )


# -- arrays --------------------------------------------------------------------------------------------------
def test_arrays_npz(tmp_path: Path) -> None:
    x, y = np.arange(60, dtype=np.float64).reshape(10, 2, 3), np.arange(10) % 4
    np.savez(tmp_path / "t.npz", x=x, labels=y)
    params = arrays.ArraysParams(path="t.npz", y="labels", classes=4)
    data = same_spec(arrays.ARRAYS, params, DataContext(tmp_path))
    assert data.spec.inputs["x"] == InputSpec((2, 3))
    assert data.spec.targets["y"] == InputSpec((), "i32", limit=4)
    np.testing.assert_array_equal(data.arrays["x"], x)


def test_arrays_folder(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.asfortranarray(np.arange(20).reshape(10, 2)))
    np.save(tmp_path / "y.npy", np.ones((10, 1), np.float32))
    data = same_spec(arrays.ARRAYS, arrays.ArraysParams(path=".", vocab_size=20), DataContext(tmp_path))
    assert data.spec.vocab_size == 20
    np.testing.assert_array_equal(data.arrays["x"][3], [6, 7])
    first = data.digest
    np.save(tmp_path / "y.npy", np.zeros((10, 1), np.float32))
    assert arrays.open(arrays.ArraysParams(path="."), DataContext(tmp_path)).digest != first


def test_arrays_errors(tmp_path: Path) -> None:
    ctx = DataContext(tmp_path)

    def fails(message: str, *, x: Any, y: Any, **options: Any) -> None:
        np.savez(tmp_path / "t.npz", x=x, y=y)
        with pytest.raises(DataError) as error:
            arrays.open(arrays.ArraysParams(path="t.npz", **options), ctx)
        assert message in str(error.value)

    y = np.zeros(4, np.int32)
    bad = np.zeros((4, 2))
    bad[2, 1] = np.inf
    fails("t.npz:x[2, 1]: expected finite numbers (f32), got inf", x=bad, y=y)
    fails("t.npz:y[3]: expected 0 to 2, got 3", x=np.zeros(4), y=np.arange(4), classes=3)
    fails("t.npz:x[0]: expected -2147483648 to 2147483647, got 1099511627776", x=np.full(4, 2**40), y=y)
    fails("equally many, got x [3], y [4]", x=np.zeros(3), y=y)
    fails("expected numbers (float, integer or boolean), got dtype |O", x=np.array([{}] * 4), y=y)
    fails("data.x: expected integers for i32, got dtype <f8", x=np.zeros(4), y=y, x_dtype="i32")
    (tmp_path / "t.npz").write_bytes(b"nothing of the kind")
    with pytest.raises(DataError, match=r"expected an \.npz archive, got a file that is none"):
        arrays.describe(arrays.ArraysParams(path="t.npz"), ctx)
    np.savez_compressed(tmp_path / "t.npz", x=np.arange(4000.0), y=np.arange(4000))
    packed = bytearray((tmp_path / "t.npz").read_bytes())
    packed[2000:2100] = bytes(100)
    (tmp_path / "t.npz").write_bytes(packed)
    with pytest.raises(DataError, match=r"t.npz:x: expected a whole array, got .*; try writing the file again"):
        arrays.open(arrays.ArraysParams(path="t.npz"), ctx)
    np.savez(tmp_path / "t.npz", x=np.zeros(4), y=y)
    packed = bytearray((tmp_path / "t.npz").read_bytes())
    packed[200] ^= 1
    (tmp_path / "t.npz").write_bytes(packed)
    with pytest.raises(DataError, match=r"t.npz:x: expected a whole array, got Bad CRC-32 for file 'x.npy'"):
        arrays.describe(arrays.ArraysParams(path="t.npz"), ctx)
    with pytest.raises(DataError, match=r"data.path: expected a file at .*t.npx, got nothing there; try one of: t.npz"):
        arrays.describe(arrays.ArraysParams(path="t.npx"), ctx)
    np.save(tmp_path / "x.npy", np.zeros((4, 2)))
    np.save(tmp_path / "y.npy", y)
    whole = (tmp_path / "x.npy").read_bytes()
    (tmp_path / "x.npy").write_bytes(whole[:-8])
    with pytest.raises(DataError, match=r"x.npy: expected a whole array, got "):
        arrays.open(arrays.ArraysParams(path="."), ctx)
    (tmp_path / "x.npy").write_bytes(whole[:40])
    with pytest.raises(DataError, match=r"x.npy: expected a whole .npy header"):
        arrays.describe(arrays.ArraysParams(path="."), ctx)


# -- images --------------------------------------------------------------------------------------------------
def picture(path: Path, colour: tuple[int, int, int], size: tuple[int, int] = (6, 4)) -> None:
    path.parent.mkdir(exist_ok=True)
    Image.new("RGB", size, colour).save(path)


def test_image_folder(tmp_path: Path) -> None:
    for i in range(4):
        picture(tmp_path / "cat" / f"{i}.png", (255, 0, 51 * i))
        picture(tmp_path / "ant" / f"{i}.png", (0, 255, 0))
    (tmp_path / "cat" / "notes.txt").write_text("left alone")
    (tmp_path / ".hidden").mkdir()
    params = image_folder.ImageFolderParams(path=".", size=(2, 3))
    data = same_spec(image_folder.IMAGE_FOLDER, params, DataContext(tmp_path))
    assert data.spec.classes == ("ant", "cat")
    assert data.spec.inputs["x"] == InputSpec((3, 2, 3))
    np.testing.assert_array_equal(data.arrays["y"], [0] * 4 + [1] * 4)
    np.testing.assert_allclose(data.arrays["x"][7, :, 0, 0], [1.0, 0.0, 0.6], atol=1e-6)
    grey = image_folder.open(image_folder.ImageFolderParams(path=".", size=2, mode="grayscale"), DataContext(tmp_path))
    assert grey.spec.inputs["x"] == InputSpec((1, 2, 2))
    assert grey.digest == data.digest


def test_image_folder_errors(tmp_path: Path) -> None:
    ctx, params = DataContext(tmp_path), image_folder.ImageFolderParams(path=".", size=2)
    with pytest.raises(DataError, match="expected one folder of images a class, got no folders"):
        image_folder.describe(params, ctx)
    (tmp_path / "a").mkdir()
    with pytest.raises(DataError, match=r"expected images, got none; try files that end in \.bmp"):
        image_folder.describe(params, ctx)
    for i in range(5):
        picture(tmp_path / "a" / f"{i}.png", (i, 0, 0))
    whole = (tmp_path / "a" / "3.png").read_bytes()
    (tmp_path / "a" / "3.png").write_bytes(whole[:45])
    with pytest.raises(DataError) as error:
        image_folder.open(params, ctx)
    assert str(error.value).startswith(f"{tmp_path / 'a' / '3.png'}: expected an image, got ")
