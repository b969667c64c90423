"""The versions of one model: which are wanted, and what is to be done about it. No threads, no files."""

from dataclasses import dataclass

from grpc import StatusCode

ENDED_KEPT = 16  # versions that are over, in the status

START, LOADING, AVAILABLE, UNLOADING, END = "START", "LOADING", "AVAILABLE", "UNLOADING", "END"


@dataclass(frozen=True)
class VersionStatus:
    """How a version is: `state` is START, LOADING, AVAILABLE, UNLOADING or END; `code` and `message` of its error."""

    version: int
    state: str
    code: StatusCode = StatusCode.OK
    message: str = ""


@dataclass
class Version:
    """A version on its way from START to END."""

    number: int
    path: object
    state: str = START
    is_wanted: bool = True
    servable: object = None
    error: Exception | None = None
    attempts: int = 0
    next_attempt: float | None = 0.0  # `time.monotonic()`; None while one is under way

    def waits_for_attempt(self):
        """Whether it has to be loaded, and is not being loaded just now."""
        return self.state in (START, LOADING) and self.next_attempt is not None

    def status(self):
        """`VersionStatus`. While a failed load is tried again, it is LOADING with the last error."""
        if self.error is None:
            return VersionStatus(self.number, self.state)
        return VersionStatus(self.number, self.state, self.error.code, self.error.message)


class Versions:
    """The versions of a model.

    Attributes:
        available: dict number -> `Servable` of those that may be asked.
    """

    def __init__(self):
        self.available = {}
        self._all = {}

    def want(self, paths):
        """Says which versions should be served.

        Args:
            paths: dict number -> directory.

        Returns:
            list of `Version`, those that ended long ago and are forgotten now.
        """
        for number, path in paths.items():
            version = self._all.get(number)
            if version is None or (version.state == END and not version.is_wanted):
                self._all[number] = Version(number, path)
        for version in self._all.values():
            # What is unloaded stays unwanted to its end, and is loaded anew after that.
            version.is_wanted = version.number in paths and (version.is_wanted or version.state != UNLOADING)
            if not version.is_wanted and version.waits_for_attempt():
                version.state = END
        over = sorted(v.number for v in self._all.values() if v.state == END and not v.is_wanted)
        return [self._all.pop(number) for number in over[:-ENDED_KEPT]]

    def begin(self, now):
        """The newest `Version` that is to be loaded now: LOADING from now on. None if there is none."""
        waiting = [v for v in self._all.values() if v.waits_for_attempt() and v.next_attempt <= now]
        version = max(waiting, key=lambda version: version.number, default=None)
        if version:
            version.state, version.next_attempt = LOADING, None
            version.attempts += 1
        return version

    def loaded(self, version, servable):
        """A version has been loaded: from now on it is asked."""
        version.state, version.servable, version.error = AVAILABLE, servable, None
        self.available[version.number] = servable

    def failed(self, version, error, next_attempt):
        """A version could not be loaded; `next_attempt` is None if that was the last one."""
        version.error, version.next_attempt = error, next_attempt
        if next_attempt is None or not version.is_wanted:
            version.state = END

    def leave(self):
        """Takes out of service what is not wanted any more, as soon as something wanted is in service.

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
        """A version is out of memory."""
        version.state, version.servable = END, None

    def are_settled(self):
        """Whether every version that is wanted has been loaded, or tried at least."""
        return all(v.state != START and (v.state != LOADING or v.error) for v in self._wanted())

    def are_hopeless(self):
        """Whether versions are wanted, and none will come."""
        return bool(self._wanted()) and all(version.state == END for version in self._wanted())

    def errors(self):
        """dict number -> `ServingError` of the versions that are wanted and could not be loaded."""
        return {version.number: version.error for version in self._wanted() if version.error}

    def statuses(self):
        """List of `VersionStatus`, newest first."""
        return [self._all[number].status() for number in sorted(self._all, reverse=True)]

    def _wanted(self):
        return [version for version in self._all.values() if version.is_wanted]
