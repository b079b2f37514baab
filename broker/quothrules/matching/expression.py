"""JMESPath expressions over values. The library is loaded when a rule has one."""

from __future__ import annotations

from typing import Any

from quothrules.failure import RuleFailure
from quothrules.matching.record_view import NO_DOCUMENT, RecordView
from quothwire.errors import error, quoted

_REASON_CHARACTERS = 300
"""Of an error of the library, which repeats the expression."""
_FALSE: tuple[Any, ...] = (None, False, "", [], {})


class Expression:
    """A compiled expression. Raises `RequestError` ``bad_setting`` for a text that is none."""

    def __init__(self, text: str, form: str) -> None:
        import jmespath
        from jmespath.exceptions import JMESPathError

        self.text = text
        self._form = form
        self._errors = JMESPathError
        try:
            self._compiled = jmespath.compile(text)
        except (JMESPathError, RecursionError, ValueError) as problem:  # too deep, or a number too long
            reason = " ".join(str(problem).split())
            raise error(
                "bad_setting",
                f"{quoted(text)} is no JMESPath: {reason:.{_REASON_CHARACTERS}}",
                "a number stands in backticks, as in total > `1000`; see https://jmespath.org",
            ) from None

    def value(self, view: RecordView) -> Any:
        """Return what a record has there: None for nothing, or if its value is not of the format.

        Raises `RuleFailure` for an operation that its types do not have.
        """
        document = view.document(self._form)
        if document is NO_DOCUMENT:
            return None
        try:
            return self._compiled.search(document)
        except (self._errors, TypeError, ValueError, ArithmeticError) as problem:
            reason = " ".join(str(problem).split())
            raise RuleFailure(f"path {self.text!r}: {reason}") from None

    def is_true(self, view: RecordView) -> bool:
        """Return True unless the result is null, false, or empty, which JMESPath calls false."""
        found = self.value(view)
        return not any(found is false or (type(found) is type(false) and found == false) for false in _FALSE)
