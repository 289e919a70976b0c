"""`reprod mcp`, asked by the client of the official SDK."""

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

mcp: Any = pytest.importorskip("mcp", reason="the package mcp is in the dependency group `test`")


async def _calls(folder: Path) -> tuple[list[str], dict[str, Any], dict[str, Any]]:
    server = mcp.StdioServerParameters(command=sys.executable, args=["-m", "reprod_log", "mcp"], env=dict(os.environ))
    async with mcp.Client(server, read_timeout_seconds=300) as client:
        tools = [tool.name for tool in (await client.list_tools()).tools]
        given = {"reference": "ref.npz", "candidate": "cand.npz", "folder": str(folder)}
        found = await client.call_tool("compare", {**given, "report": "report.html"})
        wrong = await client.call_tool("compare", {**given, "candidate": "absent.npz"})
    return tools, json.loads(found.content[0].text), json.loads(wrong.content[0].text)


def test_client_of_the_sdk_gets_the_answers_of_the_commands(tmp_path: Path) -> None:
    import anyio

    values = {f"step0/forward/{name}#0:output": np.ones(4, np.float32) * place for place, name in enumerate("ab", 1)}
    np.savez(tmp_path / "ref.npz", **values)
    np.savez(tmp_path / "cand.npz", **{key: value * (2 if "/b#" in key else 1) for key, value in values.items()})
    # On a thread of its own: a browser that was tested before may have left its loop running on this one.
    with ThreadPoolExecutor(1) as thread:
        tools, found, wrong = thread.submit(anyio.run, _calls, tmp_path).result()
    assert {"compare", "zoom", "repro", "map_weights", "report", "run_script", "plan"} == set(tools)
    assert (found["schema"], found["status"], found["exit_code"]) == ("reprod_log answer", "FAIL", 1)
    assert found["first_divergence"]["reference"] == "step0/forward/b#0:output"
    assert (tmp_path / "report.html").stat().st_size > 100_000
    assert wrong["exit_code"] == 2
    assert "absent.npz" in wrong["error"]
