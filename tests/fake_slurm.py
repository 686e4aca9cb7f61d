"""sbatch, srun, scontrol and scancel of a SLURM cluster with one machine, as far as submitit uses them.

The name by which it is called says which. Jobs are processes; what is known about them is in the folder FAKE_SLURM.
"""

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

FOLDER = Path(os.environ.get("FAKE_SLURM", "."))  # not set where tests are collected


def sbatch(file: str) -> None:
    number = 100 + len(list(FOLDER.glob("*.array")))
    array = re.search(r"--array=0-(\d+)", Path(file).read_text())
    last = int(array[1]) if array else 0
    (FOLDER / f"{number}.array").write_text(str(last + 1))
    for index in range(last + 1):
        start(f"{number}_{index}" if array else str(number), file)
    print(f"Submitted batch job {number}")


def start(job: str, file: str) -> None:
    array, _, index = job.partition("_")
    mine = {"SLURM_JOB_ID": array, "SLURM_NTASKS": "1", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0"}
    if index:
        mine |= {"SLURM_ARRAY_JOB_ID": array, "SLURM_ARRAY_TASK_ID": index}
    (FOLDER / f"{job}.file").write_text(file)
    with (FOLDER / f"{job}.log").open("a") as log:
        process = subprocess.Popen(
            ["bash", file],
            env=os.environ | mine,
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    (FOLDER / f"{job}.pid").write_text(str(process.pid))


def srun(*words: str) -> None:
    command = list(words[[word.startswith("/") and "%" not in word for word in words].index(True) :])
    os.execv(command[0], command)


def scontrol(verb: str, job: str) -> None:
    assert verb == "requeue"
    (FOLDER / f"{job}.requeued").touch()
    start(job, (FOLDER / f"{job}.file").read_text())


def scancel(job: str) -> None:
    (FOLDER / f"{job}.cancelled").touch()
    with suppress(OSError, ValueError):
        os.killpg(int((FOLDER / f"{job}.pid").read_text()), signal.SIGTERM)


if __name__ == "__main__":
    globals()[Path(sys.argv[0]).name](*sys.argv[1:])
