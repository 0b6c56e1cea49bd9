"""Objects on both servers: writes, status, patches, deletions, managed fields, reads, refusals."""

from typing import Any, Final

import pytest
from contract.contract_api import Api
from contract.contract_rows import compared, load_rows, normalised, run

ROWS: Final = load_rows()
WHOLE: Final = [name for name in ROWS if not name.startswith(("reads-", "replicasets-"))]


@pytest.mark.parametrize("row", ROWS)
async def test_both_servers_respond_as_the_row_says(api: Api, row: str) -> None:
    await run(api, ROWS[row])


@pytest.mark.parametrize("target", ["real"], indirect=True)
@pytest.mark.parametrize("row", WHOLE)
async def test_the_whole_objects_of_the_responses_are_the_same(
    both: tuple[Api, Api], row: str, real_minor_version: int
) -> None:
    """Failures are compared by what the row says: their sentences may be our own."""

    async def bodies(api: Api) -> list[Any]:
        answers = await run(api, ROWS[row])
        return [normalised(answer.body, api) for answer in answers if answer.code < 300]

    real, embedded = [await bodies(api) for api in both]
    if real_minor_version < 33:  # pods have no generation
        for body in embedded:
            if body.get("kind") == "Pod":
                del body["metadata"]["generation"]
    differences = compared(real, embedded)
    assert not differences, "\n".join(["real != embedded", *differences])
