"""Controls that change something at the broker: there are none without `allow_actions`.

Each asks first, in words that name what it does. Its handler checks the permission again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from quoth.groups.letters.dead_letters import LetterProblem
from quothweb.dashboard.markup import say, tag
from quothweb.dashboard.view import PageView
from quothweb.problems import HttpProblem
from quothwire.errors import QuothError

_CONFIRM = """(event) => {
  const dialog = event.target.closest("dialog");
  const field = dialog.querySelector("input");
  dialog.close();
  emit(field ? field.value : "");
}"""


class Action:
    """A button that opens a question, and the effect if the answer is yes.

    run: does it with the text of the field, "" without one; returns what is to be said. field: the name of a
    text to be typed, with its value.
    """

    def __init__(
        self,
        view: PageView,
        label: str,
        question: str,
        effect: str,
        run: Callable[[str], Awaitable[str]],
        *,
        field: tuple[str, str] | None = None,
        is_dangerous: bool = False,
    ) -> None:
        self._view = view
        self._run = run
        if not view.config.allow_actions:
            return
        style = "danger" if is_dangerous else ""
        with tag("dialog") as dialog:
            heading = tag("h2", question)
            tag("p", effect)
            if field is not None:
                with tag("label", field[0]):
                    tag("input", type="text", value=field[1], autocomplete="off")
            with tag("div", classes="row"):
                yes = tag("button", label, style or "strong", type="button")
                tag("button", "Cancel", type="button", data_close="")
        dialog.props["aria-labelledby"] = heading.html_id
        tag("button", label, style, type="button", data_dialog=dialog.html_id, aria_haspopup="dialog")
        yes.on("click", lambda event: self._confirmed(str(event.args)), js_handler=_CONFIRM)

    async def _confirmed(self, text: str) -> None:
        await execute(self._view, lambda: self._run(text))


def require_actions(view: PageView) -> None:
    """Raise `HttpProblem` if the server allows no actions, or the token of the viewer has ended."""
    if not view.config.allow_actions:
        raise HttpProblem("actions_off", "this server lets no request change topics and groups")
    view.services.access.principal_of(view.request)


async def execute(view: PageView, run: Callable[[], Awaitable[str]]) -> None:
    """Execute something that changes the broker, and say what was done, or why not."""
    try:
        require_actions(view)
        said = await run()
    except (QuothError, HttpProblem, LetterProblem) as problem:
        said = f"Not done: {problem.text}. {problem.hint or ''}"
    say(said)
    view.refresh(anew=True)
