"""Which documents of a trace the requests of a class may read."""

from __future__ import annotations

import numpy as np
import pytest

from dspark_sim.errors import ScenarioError
from dspark_sim.workload import document_pools
from tests.test_workload import workload

DOMAINS = ("math", "chat", "math", "code", "chat", "math")


def test_all_documents_of_a_class() -> None:
    pools = document_pools(workload(documents="all"), DOMAINS, 1, 0)
    assert [p.tolist() for p in pools] == [[0, 2, 5], [1, 4]]


def test_bootstrapped_documents() -> None:
    domains = ("math", "chat") * 200
    first, second = (document_pools(workload(), domains, 1, replication) for replication in (0, 1))
    for pool, parity in zip(first, (0, 1), strict=True):
        assert pool.size == 200
        assert set(pool % 2) == {parity}
        assert len(set(pool.tolist())) / 200 == pytest.approx(1 - np.exp(-1), abs=0.12)
    assert not np.array_equal(first[0], second[0])
    assert not np.array_equal(first[0] // 2, first[1] // 2)  # domains of equal size are drawn independently
    assert np.array_equal(first[1], document_pools(workload(), domains, 1, 0)[1])
    alone = workload(classes=[{"name": "x", "share": 1.0, "domain": "chat"}])
    assert np.array_equal(first[1], document_pools(alone, domains, 1, 0)[0])  # a domain's draw is its own affair


def test_without_a_trace_there_are_no_documents() -> None:
    assert [p.size for p in document_pools(workload(), (), 1, 0)] == [0, 0]


def test_a_class_without_documents_is_refused() -> None:
    with pytest.raises(ScenarioError, match=r"class 'chat'.* no document of domain 'chat'; allowed: math"):
        document_pools(workload(), ("math",), 1, 0)
