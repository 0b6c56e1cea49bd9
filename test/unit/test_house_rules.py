"""Rules of this project that no linter checks."""

from support.cases import cases
from support.pages import ROOT
from support.shell import python


@cases(
    "imports more",
    daemon=("import kruise_probe.cli.daemon", {"re2"}),
    manager_with_webhook=(
        "import kruise_probe.cli.manager; import kruise_probe.webhook.server",
        set(),
    ),
)
def test_manager_and_daemon_import_no_library_of_others(imports: str, more: set[str]) -> None:
    """aiohttp costs each process 8 MB; RE2, which only the manager needs, 3 MB."""
    banned = {"aiohttp", "yarl", "multidict", "kruise_probe_playground"} | more
    program = f"import sys; {imports}; print({banned} & sys.modules.keys())"
    assert python("-c", program, cwd=ROOT).stdout == "set()\n"
