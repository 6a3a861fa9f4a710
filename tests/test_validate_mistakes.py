"""Mistakes in a case of one's own that would let it judge less than it says: each is an error that names the key."""

from __future__ import annotations

from pathlib import Path

import pytest

from dspark_sim.errors import InputError
from dspark_sim.validate_case import list_cases, load_case
from tests.test_validate import HEAD, table, write


@pytest.mark.parametrize(("more", "message"), [
    ("at: [{load: 5, set: {seed: 3}}]\n", "at[0].load: got 5, and no table has this load; allowed: 4"),
    ("tolerance: {quantities: {throughput: [1, 3]}}\n", "tolerance.quantities.throughput: is judged nowhere"),
    ("tolerance: {quantities: {throughput_tok_s: [-1, 3]}}\n", "needs two numbers above 0"),
    ("readings: [{kind: ratio, arm: plane, base: plain, at: 4, quantity: throughput_tok_s, value: 1}]\n",
     "readings[0].arm: no table has the arm 'plane'; allowed: plain (did you mean 'plain'?)"),
])
def test_nothing_written_is_without_effect(tmp_path: Path, more: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        load_case(write(tmp_path, table(1.0), HEAD + more))
    assert message in str(caught.value)


@pytest.mark.parametrize(("rows", "message"), [
    ("4,plain,\n", "published[0]: holds no number to compare"),
    ("", "published"),
    ("4,plain,5,7\n", "row 2 has more cells than the header"),
])
def test_tables_without_numbers_and_cells_without_names(tmp_path: Path, rows: str, message: str) -> None:
    (tmp_path / "t.csv").write_text("at,arm,tpot_ms_mean\n" + rows)
    with pytest.raises(InputError) as caught:
        load_case(write(tmp_path, "published: [{file: t.csv}]\n"))
    assert message in str(caught.value)


@pytest.mark.parametrize("name", list_cases())
def test_the_shelf_has_none_of_them(name: str) -> None:
    load_case(name)
