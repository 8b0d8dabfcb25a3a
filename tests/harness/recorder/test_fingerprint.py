"""The libraries that torch was built with are read from its own words, and those it lacks are said to be lacking."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from numdrift.harness.recorder.fingerprint import ABSENT, fingerprint, libraries, main

SHOWN = """PyTorch built with:
  - GCC 13.3
  - C++ Version: 201703
  - Intel(R) oneAPI Math Kernel Library Version 2024.2-Product Build 20240605 for Intel(R) 64 architecture applications
  - Intel(R) MKL-DNN v3.7.1 (Git Hash 8d263e693366ef8db40acc569cc7d8edf644556d)
  - OpenMP 201511 (a.k.a. OpenMP 4.5)
  - LAPACK is enabled (usually provided by MKL)
  - NNPACK is enabled
  - Build settings: BLAS_INFO=mkl, BUILD_TYPE=Release, LAPACK_INFO=mkl, USE_MKLDNN=ON,
"""


def test_versions_are_read() -> None:
    assert libraries(SHOWN) == {
        "BLAS": "mkl",
        "LAPACK": "mkl",
        "MKL": "2024.2",
        "oneDNN": "3.7.1",
        "OpenMP": "201511",
        "NNPACK": "enabled",
        "compiler": "GCC 13.3",
    }


def test_what_torch_was_built_without_is_said_and_what_it_does_not_tell_is_left_out() -> None:
    without = "\n".join(line for line in SHOWN.splitlines() if "MKL-DNN" not in line and "Math Kernel" not in line)
    found = libraries(without)
    assert (found["MKL"], found["oneDNN"], found["BLAS"]) == (ABSENT, ABSENT, "mkl")
    assert "compiler" not in libraries("")


def test_this_torch_tells_what_it_is(tmp_path: Path) -> None:
    assert main(tmp_path / "answer.json") == 0
    found = json.loads((tmp_path / "answer.json").read_text())
    assert found["torch"] == torch.__version__ and found["threads"] == torch.get_num_threads()
    assert (found["oneDNN"] != ABSENT) == torch.backends.mkldnn.is_available()
    assert (found["MKL"] != ABSENT) == torch.backends.mkl.is_available()
    assert "numpy" in found and "numpy" not in fingerprint({}, numpy=False)
