"""All served models: a thread follows their directories, and loads and unloads versions. Requests borrow servables."""

import collections
import contextlib
import logging
import threading
import time

from grpc import StatusCode

from serving.errors import ServingError
from serving.loading import Loader
from serving.versions import Versions

NO_VERSIONS = ServingError(StatusCode.NOT_FOUND, "no directory of a version")

LOG = logging.getLogger(__name__)


class Models:
    """The models of a server and their versions.

    A new version is loaded before the old version leaves, and the old version leaves after its last request. If a
    version cannot be loaded, `status` reports the error, and the old version stays in service until a retry succeeds.

    Args:
        configs: list of `ModelConfig`.
        loader: `Loader`.
        poll_seconds: float, the seconds between two readings of the directories; 0 reads them once.
        early_labels: bool, whether a new label may name a version that is not in service.
    """

    def __init__(self, configs, loader=None, poll_seconds=1.0, early_labels=False):
        self._configs = {config.name: config for config in configs}
        self._labels = {config.name: config.labels for config in configs}
        self._loader = loader or Loader()
        self._poll_seconds = poll_seconds
        self._early_labels = early_labels
        self._versions = {}  # name -> Versions
        self._leaving = {}  # Servable -> (name, Version)
        self._uses = collections.Counter()  # Servable -> number of requests
        self._complaints = {}  # name -> the last warning about its directory
        self._changed = threading.Condition(threading.Lock())  # Guards all attributes above.
        self._polling = threading.Lock()
        self._reloading = threading.Lock()
        self._wake = threading.Event()
        self._is_stopped = False
        self._thread = threading.Thread(target=self._run, name="models", daemon=True)

    def start(self):
        """Begins to load the models; see `wait_until_available`."""
        self._thread.start()

    def names(self):
        """Returns the names of the configured models, sorted: list of str."""
        return sorted(self._configs)

    def wait_until_available(self, timeout_s=None):
        """Waits until every model has a version in service.

        Raises:
            ServingError: if all versions of a model fail to load; FAILED_PRECONDITION if a label names a version that
                is not in service; DEADLINE_EXCEEDED after `timeout_s`.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: all(map(self._is_decided, self._configs)), timeout_s):
                raise ServingError(StatusCode.DEADLINE_EXCEEDED, "The models are still being loaded")
            self._check_available(self._configs)
            self._check_labels(self._configs.values())

    def stop(self, timeout_s=None):
        """Unloads all versions, each after its last request. Waits at most `timeout_s`."""
        with self._changed:
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

        Raises:
            ServingError: NOT_FOUND, or INVALID_ARGUMENT if the label is unknown.
        """
        with self._changed:
            if label:
                version = self._version_of(name, label)
            available = self._versions[name].available if name in self._configs and name in self._versions else {}
            servable = available.get(max(available, default=None) if version is None else version)
            if servable is None:
                asked = f"Latest({name})" if version is None else f"Specific({name}, {version})"
                raise ServingError(StatusCode.NOT_FOUND, f"Servable not found for request: {asked}")
            self._uses[servable] += 1
            return servable

    def release(self, servable):
        """Returns a borrowed `Servable`."""
        with self._changed:
            self._uses[servable] -= 1
            if not self._uses[servable]:
                del self._uses[servable]
                if servable in self._leaving:
                    self._wake.set()

    def status(self, name, version=None):
        """Returns a list of `VersionStatus`, newest first, or of one version. Raises ServingError: NOT_FOUND."""
        with self._changed:
            statuses = self._versions[name].statuses() if name in self._versions else []
        statuses = [status for status in statuses if version in (None, status.version)]
        if not statuses:
            what = "any versions" if version is None else f"version {version}"
            raise ServingError(StatusCode.NOT_FOUND, f"Could not find {what} of model {name}")
        return statuses

    def __contains__(self, name):
        """Returns whether a model of this name is configured."""
        return name in self._configs

    def reload(self, configs, timeout_s=None):
        """Serves other models, versions or labels from now on, and waits until new versions are loaded.

        A version that is in service stays as it is, even if its model has another directory from now on.

        Args:
            configs: list of `ModelConfig`, of all models to serve.
            timeout_s: float, seconds.

        Raises:
            ServingError: FAILED_PRECONDITION if a label names a version that is not in service, and nothing changes.
                UNKNOWN if a model has no version in service. DEADLINE_EXCEEDED after `timeout_s`.
        """
        new = {config.name: config for config in configs}
        with self._reloading:
            with self._changed:
                self._check_labels(configs)
                self._configs = new
                self._labels = {config.name: config.labels for config in configs}
            self._poll()
            self._wake.set()
            with self._changed:
                if not self._changed.wait_for(
                    lambda: all(self._versions[name].are_settled() for name in new), timeout_s
                ):
                    raise ServingError(StatusCode.DEADLINE_EXCEEDED, "The new configuration is still being loaded")
                self._check_available(new)

    def _run(self):
        is_first = True
        while not self._is_stopped:
            try:
                if is_first or self._poll_seconds:
                    self._poll()
                is_first = False
                self._unload()
                while self._load_next() and not self._is_stopped:
                    self._unload()
            except Exception:
                LOG.exception("the thread of the models failed")
            self._wake.wait(self._poll_seconds or 1.0)  # Failed versions wait for their next attempt.
            self._wake.clear()
        with self._changed:
            for versions in self._versions.values():
                versions.want({})
        while self._unload():
            self._wake.wait()
            self._wake.clear()

    def _poll(self):
        """Reads all directories."""
        with self._polling:
            for name in {**self._versions, **self._configs}:
                config = self._configs.get(name)
                try:
                    paths = config.wanted() if config else {}
                    complaint = None if paths or not config else f"no versions of model {name} under {config.base_path}"
                except OSError as error:
                    paths, complaint = None, f"model {name}: {error}"
                with self._changed:
                    versions = self._versions.setdefault(name, Versions())
                    forgotten = [] if paths is None else versions.want(paths)
                    self._changed.notify_all()
                for version in forgotten:
                    self._loader.metrics.forget(str(version.path))
                self._complain(name, complaint)

    def _complain(self, name, complaint):
        if complaint and self._complaints.get(name) != complaint:
            LOG.warning(complaint)
        self._complaints[name] = complaint

    def _load_next(self):
        """Tries to load one version. Returns False if no version waits for an attempt."""
        with self._changed:
            now = time.monotonic()
            begun = ((versions.begin(now), name) for name, versions in self._versions.items())
            version, name = next((one for one in begun if one[0]), (None, None))
            if version is None:
                return False
        try:
            servable = self._loader.load(name, version.number, version.path)
        except ServingError as error:
            LOG.error("version %s of model %s cannot be loaded: %s", version.number, name, error)
            with self._changed:
                self._versions[name].failed(version, error, self._loader.next_attempt(version.attempts))
                self._changed.notify_all()
        else:
            with self._changed:
                self._versions[name].loaded(version, servable)
                self._changed.notify_all()
        return True

    def _unload(self):
        """Unloads the unwanted versions that no request uses. Returns whether some are still in use."""
        with self._changed:
            for name, versions in self._versions.items():
                self._leaving |= {version.servable: (name, version) for version in versions.leave()}
            unused = {servable: who for servable, who in self._leaving.items() if servable not in self._uses}
        for servable, (name, version) in unused.items():
            servable.close()
            LOG.info("unloaded version %s of model %s", version.number, name)
            with self._changed:
                del self._leaving[servable]
                self._versions[name].ended(version)
                self._changed.notify_all()
        return bool(self._leaving)

    def _is_decided(self, name):
        versions = self._versions.get(name)
        if versions is None or not versions.are_settled():
            return False
        return bool(versions.available) or versions.are_hopeless()

    def _check_available(self, names):
        if missing := sorted(name for name in names if not self._versions[name].available):
            reasons = "; ".join(
                f"name: {name} version: {number} due to error: {error.code.name}: {error.message}"
                for name in missing
                for number, error in (self._versions[name].errors() or {"none": NO_VERSIONS}).items()
            )
            raise ServingError(
                StatusCode.UNKNOWN, f"{len(missing)} servable(s) did not become available: {{{reasons}}}"
            )

    def _check_labels(self, configs):
        for config in configs:
            available = self._versions[config.name].available if config.name in self._versions else {}
            for label, version in config.labels.items():
                known = self._labels.get(config.name, {}).get(label, version)
                if version not in available and not (self._early_labels and known == version):
                    raise ServingError(
                        StatusCode.FAILED_PRECONDITION,
                        f"Request to assign label to version {version} of model {config.name}, which is not currently "
                        f"available for inference (label {label})",
                    )

    def _version_of(self, name, label):
        version = self._labels.get(name, {}).get(label)
        if version is None:
            raise ServingError(StatusCode.INVALID_ARGUMENT, f"Unrecognized servable version label: {label}")
        return version
