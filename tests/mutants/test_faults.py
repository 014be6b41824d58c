"""The planted faults of ``make mutants`` still fit the source; running them takes too long for every change."""

import pytest

from mutants.run import ROOT, read_faults

FAULTS = read_faults()


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name.replace(" ", "-"))
def test_a_planted_fault_changes_one_place_that_exists_and_names_tests_that_exist(fault):
    source = (ROOT / fault.file).read_text()
    assert fault.planted(source) != source
    for test in fault.tests:
        file, _, function = test.partition("::")
        assert f"def {function}(" in (ROOT / file).read_text() if function else (ROOT / file).exists(), test


def test_at_least_eighty_faults_are_planted_and_at_most_three_survive():
    assert len(FAULTS) >= 80
    assert sum(bool(fault.reason) for fault in FAULTS) <= 3
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)
