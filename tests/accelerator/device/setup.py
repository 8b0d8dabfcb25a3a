"""The compiled part of the package, for `pip install --no-build-isolation .`; the tests build it by installed.py."""

from pathlib import Path

from setuptools import setup  # type: ignore[import-untyped]
from torch.utils.cpp_extension import BuildExtension, CppExtension, include_paths

SOURCES = sorted(str(path) for path in Path("standin_device").glob("*.cpp"))
FLAGS = ["-std=c++20", "-O1", "-fvisibility=hidden", "-w", "-DUSE_KINETO", "-DAT_PER_OPERATOR_HEADERS"]
KINETO = str(Path(include_paths()[0]) / "kineto")

setup(
    ext_modules=[
        CppExtension("standin_device._device", SOURCES, include_dirs=[KINETO], extra_compile_args=FLAGS),
    ],
    cmdclass={"build_ext": BuildExtension},
)
