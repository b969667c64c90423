"""All served models: a thread follows their directories, and loads and unloads versions. Requests borrow servables."""

import contextlib
import gc
import logging
import threading
import time
from dataclasses import dataclass
from typing import Any

from grpc import StatusCode

from serving.errors import ServingError
from serving.servable import Loader

START, LOADING, AVAILABLE, UNLOADING, END = "START", "LOADING", "AVAILABLE", "UNLOADING", "END"

LOG = logging.getLogger(__name__)


@dataclass(eq=False)
class Version:
    """A version of a model. Between two attempts to load, its state is LOADING, with the last error."""

    number: int
    path: Any
    state: str = START
    is_wanted: bool = True
    servable: Any = None
    error: ServingError | None = None
    attempts: int = 0
    next_attempt: float = 0.0  # `time.monotonic()`.

    def waits_for_attempt(self):
        """Returns whether the version needs an attempt to load, the first or another."""
        return self.state == START or (self.state == LOADING and self.error is not None)


class Models:
    """The models of a server and their versions.

    A new version is loaded before the old version leaves, and the old version leaves after its last request. If a
    version cannot be loaded, `status` reports the error, and the old version stays in service until a retry succeeds.

    A directory is read every `poll_seconds`; 0 reads it once. A version has one attempt to load and `retries` more.
    """

    def __init__(self, configs, loader=None, poll_seconds=1.0, retries=5, retry_seconds=60.0):
        self._configs = {config.name: config for config in configs}
        self._polled = None  # The `_configs` whose directories have been read.
        self._loader = loader or Loader()
        self._poll_seconds = poll_seconds
        self._retries, self._retry_seconds = retries, retry_seconds
        self._versions = {}  # name -> number -> Version
        self._complaints = {}  # name -> the last warning about its directory
        self._changed = threading.Condition(threading.Lock())  # Guards all attributes above, and `Servable.uses`.
        self._wake = threading.Event()
        self._is_stopped = False
        self._thread = threading.Thread(target=self._run, name="models", daemon=True)

    def start(self):
        """Begins to load the models; see `wait_until_available`."""
        self._thread.start()

    def names(self):
        """Returns the names of the configured models, sorted."""
        return sorted(self._configs)

    def __contains__(self, name):
        """Returns whether a model of this name is configured."""
        return name in self._configs

    def wait_until_available(self, timeout_s=None):
        """Waits until every model has a version in service. Raises ServingError as `reload` does."""
        with self._changed:
            if not self._changed.wait_for(lambda: all(map(self._is_decided, self._configs)), timeout_s):
                raise ServingError(StatusCode.DEADLINE_EXCEEDED, "The models are still being loaded")
            self._check_available()
            self._check_labels(self._configs)

    def stop(self, timeout_s=None):
        """Loads and unloads nothing from now on. Waits at most `timeout_s` for the end of a load."""
        self._is_stopped = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    @contextlib.contextmanager
    def use(self, name, version=None, label=None):
        """Borrows a `Servable` for the duration of a context; see `acquire`."""
        servable = self.acquire(name, version, label)
        try:
            yield servable
        finally:
            self.release(servable)

    def acquire(self, name, version=None, label=None):
        """Borrows a `Servable`, which the server does not unload before `release`. None means the newest version.

        Raises ServingError: NOT_FOUND, or INVALID_ARGUMENT if the label is unknown.
        """
        with self._changed:
            config = self._configs.get(name)
            if label is not None:
                if (version := config and config.labels.get(label)) is None:
                    raise ServingError(StatusCode.INVALID_ARGUMENT, f"Unrecognized servable version label: {label}")
            available = self._available(name) if config else {}
            servable = available.get(max(available, default=None) if version is None else version)
            if servable is None:
                asked = f"Latest({name})" if version is None else f"Specific({name}, {version})"
                raise ServingError(StatusCode.NOT_FOUND, f"Servable not found for request: {asked}")
            servable.uses += 1
            return servable

    def release(self, servable):
        """Returns a borrowed `Servable`."""
        with self._changed:
            servable.uses -= 1
            if self._available(servable.name).get(servable.version) is not servable:
                self._wake.set()

    def status(self, name, version=None):
        """Returns a list of (version, state, code, message), newest first. Raises ServingError: NOT_FOUND."""
        with self._changed:
            found = [one for one in self._versions.get(name, {}).values() if version in (None, one.number)]
            found.sort(key=lambda one: -one.number)
            states = [(one.number, one.state, one.error or ServingError(StatusCode.OK, "")) for one in found]
        if not found:
            what = "any versions" if version is None else f"version {version}"
            raise ServingError(StatusCode.NOT_FOUND, f"Could not find {what} of model {name}")
        return [(number, state, error.code, error.message) for number, state, error in states]

    def reload(self, configs, timeout_s=None):
        """Serves other models, versions or labels from now on, and waits until new versions are loaded.

        A version that is in service stays as it is, even if its model has another directory from now on. Raises
        ServingError: FAILED_PRECONDITION if a label names a version that is not in service, and nothing changes;
        UNKNOWN if a model has no version in service; DEADLINE_EXCEEDED.
        """
        new = {config.name: config for config in configs}

        def is_settled():
            return self._polled is not None and self._polled is self._configs and all(map(self._are_settled, new))

        with self._changed:
            self._check_labels(new)
            self._configs = new
            self._wake.set()
            if not self._changed.wait_for(is_settled, timeout_s):
                raise ServingError(StatusCode.DEADLINE_EXCEEDED, "The new configuration is still being loaded")
            self._check_available()

    def _run(self):
        while not self._is_stopped:
            try:
                if self._poll_seconds or self._polled is not self._configs:
                    self._poll()
                self._unload()
                while self._polled is self._configs and self._load_next() and not self._is_stopped:
                    self._unload()
            except Exception:
                LOG.exception("the thread of the models failed")
            self._wake.wait(self._poll_seconds or 1.0)  # Failed versions wait for their next attempt.
            self._wake.clear()

    def _poll(self):
        configs = self._configs
        for name in {**self._versions, **configs}:
            config, complaint = configs.get(name), None
            try:
                paths = config.wanted() if config else {}
                if config and not paths:
                    complaint = f"no versions of model {name} under {config.base_path}"
            except OSError as error:
                paths, complaint = None, f"model {name}: {error}"
            if complaint and self._complaints.get(name) != complaint:
                LOG.warning(complaint)
            self._complaints[name] = complaint
            with self._changed:
                self._want(name, paths)
        with self._changed:
            self._polled = configs
            self._changed.notify_all()

    def _want(self, name, paths):
        """Sets the versions to serve: dict number -> directory, or None to change nothing."""
        versions = self._versions.setdefault(name, {})
        if paths is None:
            return
        for number, path in paths.items():
            version = versions.get(number)
            if version is None or (version.state == END and not version.is_wanted):
                versions[number] = Version(number, path)
        for version in versions.values():
            # A version that is being unloaded stays unwanted until END. Only then can it be loaded again.
            version.is_wanted = version.number in paths and (version.is_wanted or version.state != UNLOADING)
            if not version.is_wanted and version.waits_for_attempt():
                version.state = END

    def _load_next(self):
        """Tries to load one version, the newest of a model. Returns False if no version waits for an attempt."""
        with self._changed:
            every = [(name, one) for name, versions in self._versions.items() for one in versions.values()]
            due = [pair for pair in every if pair[1].waits_for_attempt() and pair[1].next_attempt <= time.monotonic()]
            if not due:
                return False
            name, version = max(due, key=lambda pair: pair[1].number)
            version.state = LOADING
        error = servable = None
        try:
            servable = self._loader.load(name, version.number, version.path)
        except ServingError as found:
            LOG.error("version %s of model %s cannot be loaded: %s", version.number, name, found)
            error = found
        with self._changed:
            version.servable, version.error, version.attempts = servable, error, version.attempts + 1
            version.next_attempt = time.monotonic() + self._retry_seconds
            is_last = version.attempts > self._retries or not version.is_wanted
            version.state = AVAILABLE if servable else END if is_last else LOADING
            self._changed.notify_all()
        return True

    def _unload(self):
        """Unloads the unwanted versions that no request uses, once a wanted one serves."""
        with self._changed:
            for name in self._versions:
                wanted = self._wanted(name)
                if not wanted or any(version.state == AVAILABLE for version in wanted):
                    for version in self._versions[name].values():
                        if version.state == AVAILABLE and not version.is_wanted:
                            version.state = UNLOADING
            leaving = [one for all in self._versions.values() for one in all.values() if one.state == UNLOADING]
        unused = [version for version in leaving if not version.servable.uses]
        for version in unused:
            version.servable.close()
            LOG.info("unloaded version %s of model %s", version.number, version.servable.name)
            with self._changed:
                version.state, version.servable = END, None
                self._changed.notify_all()
        if unused:
            gc.collect()  # A Graph has many reference cycles.

    def _available(self, name):
        versions = self._versions.get(name, {}).values()
        return {version.number: version.servable for version in versions if version.state == AVAILABLE}

    def _wanted(self, name):
        return [version for version in self._versions.get(name, {}).values() if version.is_wanted]

    def _are_settled(self, name):
        """Returns whether each version has been loaded, or has had one attempt."""
        return not any(one.state in (START, LOADING) and one.error is None for one in self._wanted(name))

    def _is_decided(self, name):
        """Returns whether a model has a version in service, or only failed ones."""
        wanted = self._wanted(name)
        is_over = self._available(name) or all(version.state == END for version in wanted)
        return bool(wanted and is_over) and self._are_settled(name)

    def _check_available(self):
        for name in self._configs:
            if not self._available(name):
                errors = [f"version {one.number}: {one.error.code.name}: {one.error}" for one in self._wanted(name)]
                why = "; ".join(errors) or "no directory of a version"
                raise ServingError(StatusCode.UNKNOWN, f"model {name} did not become available: {why}")

    def _check_labels(self, configs):
        for name, config in configs.items():
            available = self._available(name)
            if late := {label: version for label, version in config.labels.items() if version not in available}:
                message = f"model {name} has labels of versions that are not available: {late}"
                raise ServingError(StatusCode.FAILED_PRECONDITION, message)
