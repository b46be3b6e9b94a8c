"""Exceptions, and how status codes become them."""
from . import _native


class Error(RuntimeError):
    """Any failure of rtx. `code` is the name of the status, such as "CORRUPT"."""

    def __init__(self, text, code="INTERNAL"):
        super().__init__(text)
        self.code = code


class Unsupported(Error):
    """An answer, not a fault: the text begins with "UNSUPPORTED:" and names op, opset and reason."""

    def __init__(self, text):
        super().__init__(text if text.startswith("UNSUPPORTED:") else "UNSUPPORTED: " + text, "UNSUPPORTED")


class InvalidValue(Error, ValueError):
    """A wrong input, shape or option."""


class InvalidType(Error, TypeError):
    """A wrong element type or kind of object."""


class Missing(Error, FileNotFoundError):
    """A file that is not there."""


def raise_for(status, err, full_text=None):
    """Raise what `status` asks for; err is an _native.Err."""
    text = full_text or err.text.decode("utf-8", "replace")
    code = _native.STATUS[status] if 0 <= status < len(_native.STATUS) else "INTERNAL"
    if code == "UNSUPPORTED":
        raise Unsupported(text)
    if code == "CANCELLED":
        raise KeyboardInterrupt
    if code == "INVALID":
        raise InvalidValue(text, code)
    if code == "NOT_FOUND":
        raise Missing(text, code)
    raise Error(text, code)
