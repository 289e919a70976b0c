"""Build hook: compiles the optional C kernel into the wheel; without a compiler the wheel is pure Python."""

from __future__ import annotations

import importlib.util
import sys
import sysconfig
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class KernelHook(BuildHookInterface):
    """Runs for wheels and editable installs; an sdist carries the source only."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        build = _load(Path(self.root) / "src" / "reprod_log" / "measure" / "build_kernel.py")
        # What an earlier build left behind must not end up in this one.
        build.LIBRARY.unlink(missing_ok=True)
        build.SKETCH_LIBRARY.unlink(missing_ok=True)
        if build.switched_off():
            self.app.display_info(f"{build.SWITCH} is set: no C kernel, numpy will measure.")
            return
        built = build.build_kernel()
        if not built.done:
            self.app.display_warning(f"The C kernel was not built ({built.report}); numpy will measure, slower.")
            return
        self.app.display_info(f"C kernel: {built.report}.")
        build_data["artifacts"].append(build.LIBRARY.relative_to(self.root).as_posix())
        if build.build_sketch().done:
            build_data["artifacts"].append(build.SKETCH_LIBRARY.relative_to(self.root).as_posix())
        build_data["pure_python"] = False
        # The library is called through ctypes: any Python 3, but this platform only.
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"


def _load(path: Path) -> ModuleType:
    """The module at this path, without importing the package it belongs to."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module
