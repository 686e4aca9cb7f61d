"""`onebyone learn`, `predict` and `info`: classifiers of images in files."""

import csv
import io
import json
import os
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from onebyone import OnlineClassifier, UsageError
from onebyone.estimator import folders
from onebyone.estimator.folders import (
    examine_files,
    find_images,
    learn_files,
    learn_folder,
)
from onebyone.serve.operations import Operation
from onebyone.serve.service import Service
from photo_folders import COLOURS, ENCODER, encoder, new, same, write_images  # noqa: F401  # a fixture

Call = Callable[..., tuple[int, str, str]]


def test_a_folder_is_learnt_and_its_images_are_predicted(tmp_path: Path, onebyone: Call) -> None:
    root = write_images(tmp_path / "photos")
    learn = ("learn", root, "--into", "model", "--encoder", ENCODER, "--memory", "60KB")
    code, out, err = onebyone(*learn)
    assert (code, err) == (0, "")
    assert "24 images learnt; model knows 3 classes, 24 images" in out
    code, out, err = onebyone("predict", "model", root / "red" / "1.png", root / "blue")
    assert (code, err) == (0, "")
    assert [line.split()[0] for line in out.splitlines()[1:]] == ["red"] + ["blue"] * 8
    code, out, _ = onebyone("predict", "model", root / "red" / "1.png", "--json")
    (row,) = json.loads(out)["predictions"]
    assert row["class"] == "red"
    assert sum(row["probabilities"].values()) == pytest.approx(1)
    code, out, _ = onebyone("predict", "model", root / "red" / "1.png", "--csv")
    (row,) = csv.DictReader(io.StringIO(out))
    assert row["class"] == "red"
    assert float(row["red"]) == float(row["probability"])
    code, out, err = onebyone("info", "model")
    assert (code, err) == (0, "")
    assert "samples  24 of 3 classes" in out
    assert f"encoder  {ENCODER} (" in out
    code, out, _ = onebyone("info", "model", "--json")
    assert json.loads(out)["classes"] == dict.fromkeys(COLOURS, 8)


def test_more_images_and_classes_are_added_and_none_is_learnt_twice(tmp_path: Path, onebyone: Call) -> None:
    root = write_images(tmp_path / "photos", classes=COLOURS[:2])
    learn = ("learn", root, "--into", "model", "--encoder", ENCODER, "--memory", "60KB")
    onebyone(*learn)
    (root / "green" / "copy.png").write_bytes((root / "green" / "0.png").read_bytes())
    write_images(root, classes=("red",), seed=1)
    _, out, _ = onebyone(*learn)
    assert "8 images learnt, 17 known already; model knows 3 classes, 24 images" in out
    _, out, _ = onebyone(*learn, "--json")
    found = json.loads(out)
    assert (found["learnt"], found["known"]) == (0, 25)
    whole = new()
    learn_files(whole, find_images(root)[0])
    assert same(OnlineClassifier.load("model"), whole)


def test_what_cannot_be_read_is_named_and_skipped(tmp_path: Path, onebyone: Call) -> None:
    root = write_images(tmp_path / "photos", count=3)
    (root / "red" / "broken.jpg").write_bytes(b"no image")
    (root / "red" / "notes.txt").write_text("")
    (root / "red" / "deeper").mkdir()
    (root / "readme.md").write_text("")
    code, out, err = onebyone("learn", root, "--into", "model", "--encoder", ENCODER, "--memory", "60KB")
    assert code == 0
    assert "9 images learnt, 4 skipped" in out
    for name in ("broken.jpg", "notes.txt", "deeper", "readme.md"):
        assert f"{name} is skipped (" in err
    code, out, err = onebyone("predict", "model", root / "red" / "broken.jpg", root / "red" / "1.png", "no.png")
    assert code == 1
    assert "no.png is skipped (there is no such file)" in err
    assert "2 of 3 files cannot be read" in err
    assert "1.png" in out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("learn", "nowhere", "--into", "model"), "nowhere is not a folder"),
        (("learn", "flat", "--into", "model"), "flat has no sub-folders"),
        (("learn", "empty", "--into", "model"), "empty has no image files in its sub-folders"),
        (("learn", "broken", "--into", "model"), "no image in broken can be read"),
        (("learn", "photos", "--into", "flat"), "flat is a folder; give the path of a file"),
        (("learn", "photos", "--into", "text"), "text cannot be loaded"),
        (("learn", "photos", "--into", "known", "--memory", "1MB"), "known has the memory '60KB'; leave --memory out"),
        (("learn", "photos", "--into", "model", "--encoder", "lite"), "unknown encoder 'lite'"),
        (("predict", "nowhere", "photos"), "nowhere does not exist"),
        (("predict", "known", "flat"), "flat has no image files"),
        (("info", "text"), "text cannot be loaded"),
        (("learn", "photos", "--into", "model", "--workers", "0"), "workers is 0; it must be at least 1"),
        (("learn", "photos", "--into", "text/model"), "text/model cannot be written: there is no folder text"),
    ],
    ids=str,
)
def test_mistakes_are_one_sentence(tmp_path: Path, onebyone: Call, words: tuple[str, ...], sentence: str) -> None:
    write_images(tmp_path / "photos", count=2)
    (tmp_path / "empty" / "class").mkdir(parents=True)
    (tmp_path / "flat").mkdir()
    (tmp_path / "text").write_text("text")
    (tmp_path / "broken" / "class").mkdir(parents=True)
    (tmp_path / "broken" / "class" / "image.png").write_bytes(b"")
    learn_folder("photos", "known", new())
    extra = () if "--encoder" in words or words[0] != "learn" or words[3] == "known" else ("--encoder", ENCODER)
    code, out, err = onebyone(*words, *extra)
    assert code == 2
    assert out == ""
    assert sentence in err
    assert not Path("model").exists()


def test_without_the_encoder_it_is_said_what_to_install(
    tmp_path: Path, onebyone: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "PHOTOS", ("a_package_that_does_not_exist",))
    root = write_images(tmp_path / "photos", count=2)
    code, _, err = onebyone("learn", root, "--into", "model", "--memory", "60KB")
    assert code == 0
    assert err.count("\n") == 1
    assert "pip install 'onebyone[photos]'" in err


def test_a_classifier_of_gray_images_or_other_axes_reads_files_in_its_own_way(tmp_path: Path) -> None:
    root = write_images(tmp_path / "photos")
    files, _ = find_images(root)
    paths = [file.path for file in files]
    images = np.stack([np.asarray(Image.open(path)) for path in paths])
    for x in (images[..., 0], images.transpose(0, 3, 1, 2)):
        clf = new().partial_fit(x, [str(file.label) for file in files])
        found = [answers.labels for _, answers in examine_files(clf, paths, lambda *_: None)]
        assert (np.concatenate(found) == [file.label for file in files]).mean() > 0.9
    with pytest.raises(UsageError, match="learns no images of bytes"):
        list(examine_files(OnlineClassifier().partial_fit([[1.0], [2.0]], ["a", "b"]), paths, lambda *_: None))


def test_one_class_and_an_empty_folder_are_said(tmp_path: Path, onebyone: Call) -> None:
    root = write_images(tmp_path / "photos", count=2, classes=("red",))
    (root / "green").mkdir()
    code, out, err = onebyone("learn", root, "--into", "model", "--encoder", ENCODER, "--memory", "60KB")
    assert code == 0
    assert "2 images learnt, 1 skipped; model knows 1 class, 2 images" in out
    assert "green is skipped (an empty folder)" in err
    only = "onebyone: red is the only class so far, so every answer is red or unknown; learn another class\n"
    assert only in err
    assert onebyone("predict", "model", root / "red")[2] == only
    code, out, err = onebyone("info", "model")
    assert "no estimate of the accuracy: there is only one class" in out
    assert err == only


def test_one_image_is_no_plural(tmp_path: Path, onebyone: Call) -> None:
    root = write_images(tmp_path / "photos", count=1, classes=("red",))
    out = onebyone("learn", root, "--into", "model", "--encoder", ENCODER, "--memory", "60KB")[1]
    assert out.startswith("1 image learnt; model knows 1 class, 1 image\n")


def test_links_are_followed_and_broken_ones_named(tmp_path: Path, onebyone: Call) -> None:
    root = write_images(tmp_path / "photos", count=2, classes=("red", "green"))
    write_images(tmp_path / "elsewhere", count=2, classes=("blue",), seed=1)
    (root / "blue").symlink_to(tmp_path / "elsewhere" / "blue")
    (root / "red" / "link.png").symlink_to(write_images(tmp_path / "more", 1, ("red",), seed=2) / "red" / "0.png")
    (root / "red" / "broken.png").symlink_to(tmp_path / "nowhere.png")
    (root / "red" / "loop.png").symlink_to(root / "red" / "loop.png")
    code, out, err = onebyone("learn", root, "--into", "model", "--encoder", ENCODER, "--memory", "60KB")
    assert code == 0
    assert "7 images learnt, 2 skipped; model knows 3 classes, 7 images" in out
    assert "broken.png is skipped (No such file or directory)" in err
    assert "loop.png is skipped (Too many levels of symbolic links)" in err


def test_empty_folders_of_classes_are_not_taken_for_nested_ones(tmp_path: Path, onebyone: Call) -> None:
    (tmp_path / "photos" / "red").mkdir(parents=True)
    said = onebyone("learn", "photos", "--into", "model")[2]
    assert "photos has no image files in its sub-folders" in said
    assert "have folders" not in said


def test_merging_says_which_images_count_twice(tmp_path: Path, onebyone: Call) -> None:
    for name, seed in (("one", 0), ("two", 1)):
        root = write_images(tmp_path / name, count=2, seed=seed)
        assert onebyone("learn", root, "--into", f"{name}.onebyone", "--encoder", ENCODER, "--memory", "60KB")[0] == 0
    assert onebyone("merge", "one.onebyone", "two.onebyone", "--into", "both.onebyone")[2] == ""
    code, _, err = onebyone("merge", "both.onebyone", "one.onebyone", "--into", "more.onebyone")
    assert code == 0
    assert f"{2 * 3} of the images that one.onebyone has learnt were learnt by those before it too" in err


def test_what_was_learnt_from_a_folder_can_be_served(tmp_path: Path, onebyone: Call) -> None:
    """A server sets freeze_encoder and learn does not; statistics freeze the encoder in any case."""
    root = write_images(tmp_path / "photos")
    assert onebyone("learn", root, "--into", "model", "--encoder", ENCODER, "--memory", "60KB")[0] == 0
    with closing(Service(tmp_path / "state", encoder=ENCODER, memory="60KB")) as service:
        merged = service.submit(Operation("merge", content=Path("model").read_bytes())).result(60)
        assert merged["counts"] == {"blue": 8, "green": 8, "red": 8}
        service.model.classifier.save("served")
    assert onebyone("learn", root, "--into", "served")[1].startswith("0 images learnt, 24 known already")


def test_a_link_to_the_folder_itself_and_hidden_files_are_no_images(tmp_path: Path, onebyone: Call) -> None:
    root = write_images(tmp_path / "photos", count=2)
    shutil.copy(root / "red" / "0.png", root / "stray.png")
    (root / "loop").symlink_to(root)
    (root / "red" / "up").symlink_to(tmp_path)
    (root / "red" / "._0.png").write_bytes(b"of another system")
    files, skipped = find_images(root)
    assert {file.label for file in files} == set(COLOURS)
    assert skipped[root / "loop"] == "a link to a folder that it is in"
    learn_folder(root, "model", new())
    code, out, err = onebyone("predict", "model", root / "red")
    assert (code, len(out.splitlines()), err) == (
        0,
        3,
        f"onebyone: {root / 'red' / 'up'} is skipped (a link to a folder that it is in)\n",
    )


def test_a_broken_link_in_a_folder_is_reported(tmp_path: Path, onebyone: Call) -> None:
    root = write_images(tmp_path / "photos", count=2)
    learn_folder(root, "model", new())
    (root / "red" / "gone.png").symlink_to("nothing.png")
    code, out, err = onebyone("predict", "model", root / "red")
    assert (code, len(out.splitlines())) == (1, 3)
    assert "gone.png is skipped (there is no such file)" in err


def test_a_pipe_cannot_be_predicted(tmp_path: Path, onebyone: Call) -> None:
    root = write_images(tmp_path / "photos", count=2)
    learn_folder(root, "model", new())
    os.mkfifo("pipe.png")
    code, _, err = onebyone("predict", "model", "pipe.png")
    assert code == 1
    assert "pipe.png is skipped (it is a pipe)" in err


def test_files_are_not_merged_into_one_that_another_process_is_learning_into(tmp_path: Path, onebyone: Call) -> None:
    learn_folder(write_images(tmp_path / "photos", count=2), "model", new())
    before = Path("model").read_bytes()
    with folders.file_lock(Path("model")):
        code, _, err = onebyone("merge", "model", "model", "--into", "model")
    assert code == 2
    assert "another process is learning into model" in err
    assert Path("model").read_bytes() == before


def test_a_pipe_is_skipped(tmp_path: Path) -> None:
    root = write_images(tmp_path / "photos", count=1)
    os.mkfifo(root / "red" / "pipe.png")
    assert find_images(root)[1] == {root / "red" / "pipe.png": "a pipe, socket or device"}


def test_names_in_any_form_of_unicode_are_one_class(tmp_path: Path, onebyone: Call) -> None:
    root = tmp_path / "photos"
    composed, separate = "caf\N{LATIN SMALL LETTER E WITH ACUTE}", "cafe\N{COMBINING ACUTE ACCENT}"
    for seed, name in enumerate((composed, separate, 'a,b "c"', "\N{DOG FACE}")):
        write_images(root, count=2, classes=(name,), seed=seed)
    broken = root / os.fsdecode(b"no \xff text")
    (root / "\N{DOG FACE}").rename(broken)
    learn = ("learn", root, "--into", "model", "--encoder", ENCODER, "--memory", "60KB", "--json")
    code, out, err = onebyone(*learn)
    assert (code, err) == (0, "")
    assert json.loads(out)["classes"] == {composed: 4, 'a,b "c"': 2, "no \N{REPLACEMENT CHARACTER} text": 2}
    code, out, _ = onebyone("predict", "model", broken, root / composed, "--csv")
    assert code == 0
    rows = list(csv.DictReader(io.StringIO(out)))
    assert len(rows) == 4
    assert {composed, 'a,b "c"'} < set(rows[0])
    (broken / "0.png").rename(broken / "two\nlines.png")
    assert "/two\\nlines.png\n" in onebyone("predict", "model", broken)[1]


def test_a_file_of_a_camera_that_pillow_cannot_read_names_the_package(
    tmp_path: Path, onebyone: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onebyone.estimator.folders.suffixes", lambda: (".png",))
    root = write_images(tmp_path / "photos", count=1)
    (root / "red" / "1.HEIC").write_bytes(b"")
    (root / "red" / "notes.txt").write_text("")
    code, _, err = onebyone("learn", root, "--into", "model", "--encoder", ENCODER, "--memory", "60KB")
    assert code == 0
    said = "1.HEIC is skipped (Pillow cannot read .heic; pip install pillow-heif)"
    assert said in err
    code, out, err = onebyone("predict", "model", root)
    assert (code, len(out.splitlines())) == (1, 4)
    assert said in err
    assert "notes.txt is skipped (no image file)" in err
    assert "1 of 4 files cannot be read" in err
    (root / "red" / "1.HEIC").unlink()
    assert onebyone("predict", "model", root)[0] == 0
    (root / "blue" / "0.png").rename(root / "blue" / "0.heic")
    code, _, err = onebyone("predict", "model", root / "blue")
    assert code == 2
    assert "0.heic is skipped" in err
    assert "blue has no image files that can be read" in err


def test_images_that_cannot_be_read_are_named_before_other_files(tmp_path: Path, onebyone: Call) -> None:
    root = write_images(tmp_path / "photos", count=2)
    for number in range(12):
        (root / f"{number}.db").write_bytes(b"")
        (root / "red" / f"broken {number}.jpg").write_bytes(b"no image")
    err = onebyone("learn", root, "--into", "model", "--encoder", ENCODER, "--memory", "60KB")[2]
    assert err.count("/broken ") == 10
    assert "onebyone: 14 more are skipped (2 images among them); --json names all\n" in err


def test_images_in_nested_folders_are_learnt_and_predicted(tmp_path: Path, onebyone: Call) -> None:
    root = write_images(tmp_path / "photos", count=2)
    deep = write_images(tmp_path / "more", 2, seed=1) / "red"
    deep.rename(root / "red" / "a trip")
    (root / "red" / "a trip" / "round").symlink_to(root / "red")
    _, out, err = onebyone("learn", root, "--into", "model", "--encoder", ENCODER, "--memory", "60KB", "--json")
    assert json.loads(out)["classes"] == {"blue": 2, "green": 2, "red": 4}
    assert err == f"onebyone: {root}/red/a trip/round is skipped (a link to a folder that it is in)\n"
    found = json.loads(onebyone("predict", "model", root, "--json")[1])
    assert len(found["predictions"]) == 8


def test_parts_of_a_data_set_are_not_taken_for_classes(tmp_path: Path, onebyone: Call) -> None:
    for part in ("train", "val"):
        write_images(tmp_path / "photos" / part, count=1)
    code, _, err = onebyone("learn", "photos", "--into", "model", "--encoder", ENCODER)
    assert code == 2
    assert "photos is divided into train and val; give one of these, which has a folder per class" in err


def test_an_unknown_image_has_no_class_in_tables_for_programs(tmp_path: Path, onebyone: Call) -> None:
    root = write_images(tmp_path / "photos", count=20)
    learn_folder(root, "model", OnlineClassifier(encoder=ENCODER, memory="1MB", batch_size=64))
    Image.new("RGB", (40, 40)).save("black.png")
    predict = ("predict", "model", "black.png")
    (row,) = csv.DictReader(io.StringIO(onebyone(*predict, "--csv")[1]))
    assert (row["class"], row["unknown"]) == ("", "1")
    assert row["nearest"] in COLOURS
    (found,) = json.loads(onebyone(*predict, "--json")[1])["predictions"]
    assert (found["class"], found["nearest"]) == (None, row["nearest"])
    assert f"unknown ({row['nearest']})" in onebyone(*predict)[1]


def test_an_image_that_is_too_large_is_named_once(
    tmp_path: Path, onebyone: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_images(tmp_path / "photos", count=2)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 2000)
    Image.new("RGB", (50, 60)).save(root / "red" / "large.png")
    Image.new("RGB", (90, 90)).save(root / "red" / "larger.png")
    err = onebyone("learn", root, "--into", "model", "--encoder", ENCODER, "--memory", "60KB")[2]
    assert [line.rpartition("/")[2] for line in err.splitlines()] == [
        "large.png is skipped (it has 50 x 60 pixels, and the limit is 2,000 pixels)",
        "larger.png is skipped (it has more than 4,000 pixels, and the limit is 2,000 pixels)",
    ]


def test_with_many_classes_the_worst_are_shown(tmp_path: Path, onebyone: Call) -> None:
    clf = OnlineClassifier("lda", memory="1MB").partial_fit(
        np.random.default_rng(0).normal(0, 1, (60, 4)), [*range(12)] * 5
    )
    clf.save("model")
    short, whole = (onebyone("info", "model", *more)[1] for more in ((), ("--all",)))
    assert "In the accuracy, each class counts equally.\n" in short
    assert "the 10 classes with the lowest accuracy; --all shows all" in short
    assert len(whole.splitlines()) == len(short.splitlines()) + 2 * 2 - 2
    assert len(json.loads(onebyone("info", "model", "--json")[1])["report"]["classes"]) == 12
    assert onebyone("info", "model", "--json")[1] == onebyone("info", "model", "--json", "--all")[1]


def test_classes_that_look_alike_are_named(tmp_path: Path, onebyone: Call) -> None:
    root = write_images(tmp_path / "photos", count=60, classes=("blue", "green"))
    for seed, name in enumerate(("same", "equal")):
        write_images(tmp_path / name, count=60, seed=seed + 5)
        (tmp_path / name / "red").rename(root / name)
    code, out, err = onebyone("learn", root, "--into", "model", "--encoder", ENCODER, "--memory", "1MB", "--json")
    assert code == 0
    assert json.loads(out)["alike"] == [["equal", "same"]]
    assert "equal and same are told apart no better than by chance; look whether their images differ" in err
    assert "told apart no better than by chance" in onebyone("info", "model")[1]


def test_without_an_encoder_the_size_is_an_option(tmp_path: Path, onebyone: Call) -> None:
    root = write_images(tmp_path / "photos", count=2)
    learn = ("learn", root, "--into", "model", "--size")
    code, _, err = onebyone(*learn, "20", "--memory", "60KB")
    assert (code, err) == (0, "")
    assert OnlineClassifier.load("model")._fitted().layout.shape == (20, 20, 3)
    assert "model has the size 20; leave --size out" in onebyone(*learn, "30")[2]
    assert "leave one of them out" in onebyone("learn", root, "--into", "other", "--size", "9", "--encoder", "lite0")[2]


def test_names_with_line_breaks_are_printed_on_one_line_and_paths_as_words_of_a_shell(
    tmp_path: Path, onebyone: Call
) -> None:
    write_images(tmp_path / "photos", 3, ("new\nline", "red \x1b[31m"))
    out = onebyone("learn", "photos", "--into", "my pets", "--encoder", ENCODER)[1]
    assert "Next: onebyone predict 'my pets' IMAGE..." in out
    out = onebyone("info", "my pets")[1]
    assert out.count("new\\nline") >= 2  # in the report, and among the classes
    assert "new\nline" not in out
    assert "\x1b" not in out


def test_a_link_to_a_classifier_leads_to_the_file_that_learns(tmp_path: Path, onebyone: Call) -> None:
    """Before, the link was replaced by a new file, and the file itself did not learn."""
    write_images(tmp_path / "one", 3, ("blue", "green"))
    write_images(tmp_path / "two", 3, ("red",), seed=1)
    (tmp_path / "versions").mkdir()
    onebyone("learn", "one", "--into", "versions/first", "--encoder", ENCODER)
    Path("current").symlink_to("versions/first")
    assert onebyone("learn", "two", "--into", "current")[0] == 0
    assert Path("current").is_symlink()
    assert OnlineClassifier.load("versions/first").classes_.tolist() == ["blue", "green", "red"]
    with folders.file_lock(Path("versions/first")):
        code, _, err = onebyone("learn", "two", "--into", "current")
    assert code == 2
    assert "another process is learning into current" in err
