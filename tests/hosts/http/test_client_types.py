"""Types for TypeScript, generated from the OpenAPI document, and a client that is written against them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from ...support.http.documented_client import api_document, operations_of
from ...support.npm.node_packages import NodePackages

pytestmark = pytest.mark.slow

CLIENT = Path(__file__).parent / "client_types" / "client.ts"

STRICT = ("--strict", "--noEmit", "--exactOptionalPropertyTypes", "--noUncheckedIndexedAccess", "--noUnusedLocals")
MODULES = ("--target", "es2022", "--module", "nodenext", "--lib", "es2022,dom")


def test_a_client_compiles_with_the_generated_types(npm: NodePackages, tmp_path: Path) -> None:
    """openapi-typescript reads the document, and a client that uses requests, answers, problems and updates compiles;
    its last lines would not, and the compiler is told to expect that."""
    (tmp_path / "openapi.json").write_text(json.dumps(api_document()), "utf-8")
    npm.tool("openapi-typescript", "openapi.json", "--output", "api.d.ts", folder=tmp_path)
    generated = (tmp_path / "api.d.ts").read_text("utf-8")
    shutil.copy(CLIENT, tmp_path)

    npm.tool("tsc", *STRICT, *MODULES, "client.ts", "api.d.ts", folder=tmp_path)

    assert all(f"    {name}: {{" in generated for name in operations_of(api_document()))
