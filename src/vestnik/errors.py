"""The one tree of errors.

VestnikError
├── ConfigError         a setting or a file of the user is wrong; the text says how to put it right
├── DatabaseError       the database cannot be used as it is
│   ├── EmbeddedServerError     the embedded server could not be started or stopped
│   └── SchemaMismatch          the schema is newer than this program, or not one it knows
├── InvalidPayload      the shape of a payload is wrong; ``problems`` lists every fault by name
├── IllegalMove         a delivery was asked to make a move that its state machine forbids
├── NotFound            what was named does not exist in this workspace
├── Conflict            what is there already, or is in use, stands in the way
├── TryLater            too much is asked for at once; ``after`` seconds from now it may be asked again
├── WrongPassword       (ops.sign_in) a login and a password that do not belong together
├── JobSignal           (ops.jobs.registry) how a handler ends its run, other than by returning
│   ├── JobRetry                once more, later
│   ├── JobFailed               never again: it cannot succeed
│   └── JobSnooze               not yet; this run was no attempt
├── TellFailed          (ops.alerts) an alert target or a webhook did not acknowledge what it was told
├── DownloadRefused     (download) an address was not fetched, and why
├── StorageError        (storage) the object store did not do it
│   └── ObjectNotFound          the store is there, the object is not
├── MediaRefused        (autopost.media) these bytes are not taken as media
│   └── FileTooLarge            there are too many of them
├── FetchFailed         (autopost.media) what an address leads to did not become a blob
├── UploadRefused       (autopost.media) a multipart body is none, or breaks off
├── SourceFailed        (autopost.sources) a source could not be read, and why
├── MappingFailed       (autopost.sources.template) one record of a source does not give what its mapping asks for
├── PayloadUnreadable   (autopost.payloads) a kept payload was sealed with a key that is not at hand, or was changed
├── LinkForged          (autopost.payloads) a link to a payload that is none of ours
├── LinkExpired         (autopost.payloads) one whose time is over
└── SendError           (adapters.contract) what a platform answered, in the normalised form
"""

from __future__ import annotations


class VestnikError(Exception):
    """Everything Vestnik raises on purpose. ``hint`` is the next step for the person who reads it."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


class ConfigError(VestnikError):
    pass


class DatabaseError(VestnikError):
    pass


class EmbeddedServerError(DatabaseError):
    pass


class SchemaMismatch(DatabaseError):
    pass


class InvalidPayload(VestnikError):
    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


class IllegalMove(VestnikError):
    pass


class NotFound(VestnikError):
    pass


class Conflict(VestnikError):
    pass


class TryLater(VestnikError):
    def __init__(self, message: str, *, after: float) -> None:
        super().__init__(message)
        self.after = after
