"""Coop: a declarative sandbox for AI agents and any other untrusted command.

>>> import subprocess, coopfile
>>> plan = coopfile.compile("Coopfile", overrides={"network.mode": "none"})
>>> subprocess.run(coopfile.wrap(["make", "test"], plan))
>>> with coopfile.Session(plan) as session:
...     result = session.exec(["make", "test"], timeout=120)

Names are loaded when they are first used: a cached ``coop run`` needs none of them.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from coopfile.api import compile as compile
    from coopfile.api import wrap as wrap
    from coopfile.errors import CoopError as CoopError
    from coopfile.plan.model import Plan as Plan
    from coopfile.proxy.denials import Denial as Denial
    from coopfile.session.fake import Answer as Answer
    from coopfile.session.fake import Call as Call
    from coopfile.session.fake import FakeBackend as FakeBackend
    from coopfile.session.manager import SessionManager as SessionManager
    from coopfile.session.model import PlanDiffers as PlanDiffers
    from coopfile.session.model import SessionError as SessionError
    from coopfile.session.model import SessionGone as SessionGone
    from coopfile.session.result import CommandFailed as CommandFailed
    from coopfile.session.result import CommandLost as CommandLost
    from coopfile.session.result import Result as Result
    from coopfile.session.session import Session as Session
    from coopfile.tools.confirm import Confirmation as Confirmation
    from coopfile.tools.definitions import ToolDefinition as ToolDefinition
    from coopfile.tools.executor import ToolExecutor as ToolExecutor
    from coopfile.tools.toolbox import Caller as Caller
    from coopfile.tools.toolbox import ToolResult as ToolResult

__version__ = "0.1.0"
__all__ = [
    "Answer",
    "Call",
    "Caller",
    "CommandFailed",
    "CommandLost",
    "Confirmation",
    "CoopError",
    "Denial",
    "FakeBackend",
    "Plan",
    "PlanDiffers",
    "Result",
    "Session",
    "SessionError",
    "SessionGone",
    "SessionManager",
    "ToolDefinition",
    "ToolExecutor",
    "ToolResult",
    "__version__",
    "compile",
    "wrap",
]

_PLACES = {
    "Answer": "coopfile.session.fake",
    "Call": "coopfile.session.fake",
    "Caller": "coopfile.tools.toolbox",
    "CommandFailed": "coopfile.session.result",
    "CommandLost": "coopfile.session.result",
    "Confirmation": "coopfile.tools.confirm",
    "CoopError": "coopfile.errors",
    "Denial": "coopfile.proxy.denials",
    "FakeBackend": "coopfile.session.fake",
    "Plan": "coopfile.plan.model",
    "PlanDiffers": "coopfile.session.model",
    "Result": "coopfile.session.result",
    "Session": "coopfile.session.session",
    "SessionError": "coopfile.session.model",
    "SessionGone": "coopfile.session.model",
    "SessionManager": "coopfile.session.manager",
    "ToolDefinition": "coopfile.tools.definitions",
    "ToolExecutor": "coopfile.tools.executor",
    "ToolResult": "coopfile.tools.toolbox",
    "compile": "coopfile.api",
    "wrap": "coopfile.api",
}


def __getattr__(name: str) -> object:
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib
    import sys

    try:
        module = importlib.import_module(place)
    except (ImportError, AttributeError) as error:
        if sys.platform == "linux":
            raise
        raise ImportError(f"coopfile.{name} needs Linux") from error
    value: object = getattr(module, name)
    globals()[name] = value
    return value
