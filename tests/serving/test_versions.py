import itertools
import random

from grpc import StatusCode

from serving.errors import ServingError
from serving.versions import ENDED_KEPT, Versions, VersionStatus

BROKEN = ServingError(StatusCode.DATA_LOSS, "cut off")


def paths(*numbers):
    return {number: f"/m/{number}" for number in numbers}


def states(versions):
    return {status.version: status.state for status in versions.statuses()}


def load(versions, now=0.0):
    version = versions.begin(now)
    versions.loaded(version, f"servable {version.number}")
    return version


def test_the_newest_is_loaded_first_and_asked_once_it_is():
    versions = Versions()
    versions.want(paths(2, 5, 3))
    assert states(versions) == {5: "START", 3: "START", 2: "START"}
    version = versions.begin(0.0)
    assert states(versions) == {5: "LOADING", 3: "START", 2: "START"} and versions.available == {}
    versions.loaded(version, "it")
    assert versions.available == {5: "it"} and load(versions).number == 3 and load(versions).number == 2
    assert versions.begin(0.0) is None and versions.are_settled()


def test_the_old_version_goes_when_the_new_one_is_in_service():
    versions = Versions()
    versions.want(paths(1))
    old = load(versions)
    versions.want(paths(2))
    assert versions.leave() == []
    load(versions)
    assert versions.leave() == [old] and versions.available == {2: "servable 2"}
    assert states(versions) == {2: "AVAILABLE", 1: "UNLOADING"}
    versions.ended(old)
    assert states(versions) == {2: "AVAILABLE", 1: "END"}


def test_the_old_version_stays_while_the_new_one_cannot_be_loaded():
    versions = Versions()
    versions.want(paths(1))
    load(versions)
    versions.want(paths(2))
    versions.failed(versions.begin(0.0), BROKEN, 60.0)
    assert versions.statuses()[0] == VersionStatus(2, "LOADING", StatusCode.DATA_LOSS, "cut off")
    assert versions.begin(59.0) is None and versions.are_settled()
    versions.failed(versions.begin(60.0), BROKEN, None)
    assert versions.statuses()[0] == VersionStatus(2, "END", StatusCode.DATA_LOSS, "cut off")
    assert versions.leave() == [] and versions.begin(1e9) is None
    assert versions.errors() == {2: BROKEN} and versions.are_hopeless() and versions.available == {1: "servable 1"}


def test_a_failed_version_is_loaded_when_it_has_gone_and_come_again():
    versions = Versions()
    versions.want(paths(2))
    versions.failed(versions.begin(0.0), BROKEN, None)
    versions.want(paths(2))
    assert versions.begin(0.0) is None
    versions.want({})
    versions.want(paths(2))
    assert load(versions).number == 2 and versions.errors() == {}


def test_all_go_when_none_is_wanted():
    versions = Versions()
    versions.want(paths(1, 2))
    load(versions), load(versions)
    versions.want({})
    assert len(versions.leave()) == 2 and versions.available == {}


def test_a_version_wanted_again_before_it_left_stays():
    versions = Versions()
    versions.want(paths(1))
    load(versions)
    versions.want(paths(2))
    versions.want(paths(1))
    assert versions.leave() == [] and states(versions) == {2: "END", 1: "AVAILABLE"}


def test_a_version_wanted_again_while_it_is_unloaded_is_loaded_anew():
    versions = Versions()
    versions.want(paths(1))
    load(versions)
    versions.want({})
    (leaving,) = versions.leave()
    versions.want(paths(1))
    assert versions.begin(0.0) is None
    versions.ended(leaving)
    versions.want(paths(1))
    assert load(versions) is not leaving


def test_a_version_unwanted_while_it_is_loaded_is_taken_out_again():
    versions = Versions()
    versions.want(paths(1))
    version = versions.begin(0.0)
    versions.want({})
    versions.want(paths(1))
    assert versions.begin(0.0) is None  # not a second time meanwhile
    versions.want({})
    versions.loaded(version, "it")
    assert versions.leave() == [version]


def test_only_the_last_of_those_that_are_over_are_remembered():
    versions = Versions()
    forgotten = []
    for number in range(1, 41):
        forgotten += versions.want(paths(number))
        load(versions)
        for old in versions.leave():
            versions.ended(old)
    assert len(versions.statuses()) <= ENDED_KEPT + 2
    assert [version.number for version in forgotten] == list(range(1, 1 + len(forgotten)))


def test_whatever_happens_something_wanted_that_was_in_service_is_replaced_only_by_something_in_service():
    chance = random.Random(5)
    for _ in range(200):
        versions, loading, leaving = Versions(), [], []
        was_available = False
        for now in itertools.count():
            action = chance.randrange(6)
            if action == 0:
                versions.want(paths(*chance.sample(range(5), 1 + chance.randrange(3))))
            elif action == 1 and not loading and (version := versions.begin(float(now))):
                loading.append(version)
            elif action == 2 and loading:
                versions.loaded(loading.pop(), object())
            elif action == 3 and loading:
                versions.failed(loading.pop(), BROKEN, chance.choice([None, now + 3.0]))
            elif action == 4:
                leaving += versions.leave()
            elif leaving:
                versions.ended(leaving.pop())
            was_available |= bool(versions.available)
            assert bool(versions.available) == was_available
            in_service = [version for version in versions._all.values() if version.state == "AVAILABLE"]
            assert versions.available == {version.number: version.servable for version in in_service}
            if now > 60:
                break
