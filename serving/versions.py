"""The versions of one model: decides which versions to load and to unload. No threads, no files."""

from dataclasses import dataclass

from grpc import StatusCode

ENDED_KEPT = 16  # Ended versions in the status.

START, LOADING, AVAILABLE, UNLOADING, END = "START", "LOADING", "AVAILABLE", "UNLOADING", "END"


@dataclass(frozen=True)
class VersionStatus:
    """The status of a version: its state START, LOADING, AVAILABLE, UNLOADING or END, and the error, if any."""

    version: int
    state: str
    code: StatusCode = StatusCode.OK
    message: str = ""


@dataclass
class Version:
    """A version between START and END."""

    number: int
    path: object
    state: str = START
    is_wanted: bool = True
    servable: object = None
    error: Exception | None = None
    attempts: int = 0
    next_attempt: float | None = 0.0  # `time.monotonic()`; None during an attempt.

    def waits_for_attempt(self):
        """Returns whether the version needs an attempt to load, and no attempt is running."""
        return self.state in (START, LOADING) and self.next_attempt is not None

    def status(self):
        """Returns the `VersionStatus`. Between two attempts to load, the state is LOADING, with the last error."""
        if self.error is None:
            return VersionStatus(self.number, self.state)
        return VersionStatus(self.number, self.state, self.error.code, self.error.message)


class Versions:
    """The versions of a model.

    Attributes:
        available: dict number -> `Servable` of the versions in service.
    """

    def __init__(self):
        self.available = {}
        self._all = {}

    def want(self, paths):
        """Sets the versions to serve.

        Args:
            paths: dict number -> directory.

        Returns:
            list of `Version`: old ended versions, which are now forgotten.
        """
        for number, path in paths.items():
            version = self._all.get(number)
            if version is None or (version.state == END and not version.is_wanted):
                self._all[number] = Version(number, path)
        for version in self._all.values():
            # A version that is being unloaded stays unwanted until END. Only then can it be loaded again.
            version.is_wanted = version.number in paths and (version.is_wanted or version.state != UNLOADING)
            if not version.is_wanted and version.waits_for_attempt():
                version.state = END
        over = sorted(v.number for v in self._all.values() if v.state == END and not v.is_wanted)
        return [self._all.pop(number) for number in over[:-ENDED_KEPT]]

    def begin(self, now):
        """Returns the newest `Version` to load now, and sets its state to LOADING. None if there is none."""
        waiting = [v for v in self._all.values() if v.waits_for_attempt() and v.next_attempt <= now]
        version = max(waiting, key=lambda version: version.number, default=None)
        if version:
            version.state, version.next_attempt = LOADING, None
            version.attempts += 1
        return version

    def loaded(self, version, servable):
        """Puts a loaded version into service."""
        version.state, version.servable, version.error = AVAILABLE, servable, None
        self.available[version.number] = servable

    def failed(self, version, error, next_attempt):
        """Records a failed attempt. After the last attempt, `next_attempt` is None."""
        version.error, version.next_attempt = error, next_attempt
        if next_attempt is None or not version.is_wanted:
            version.state = END

    def leave(self):
        """Takes unwanted versions out of service, as soon as a wanted version is in service.

        Returns:
            list of `Version`, now UNLOADING.
        """
        wanted = self._wanted()
        if wanted and not any(version.state == AVAILABLE for version in wanted):
            return []
        leaving = [v for v in self._all.values() if v.state == AVAILABLE and not v.is_wanted]
        for version in leaving:
            version.state = UNLOADING
            del self.available[version.number]
        return leaving

    def ended(self, version):
        """Records that a version is unloaded."""
        version.state, version.servable = END, None

    def are_settled(self):
        """Returns whether each wanted version has been loaded, or has had one attempt."""
        return all(v.state != START and (v.state != LOADING or v.error) for v in self._wanted())

    def are_hopeless(self):
        """Returns whether versions are wanted and all of them have failed."""
        return bool(self._wanted()) and all(version.state == END for version in self._wanted())

    def errors(self):
        """Returns dict number -> `ServingError` of the wanted versions that failed."""
        return {version.number: version.error for version in self._wanted() if version.error}

    def statuses(self):
        """Returns a list of `VersionStatus`, newest first."""
        return [self._all[number].status() for number in sorted(self._all, reverse=True)]

    def _wanted(self):
        return [version for version in self._all.values() if version.is_wanted]
