"""Binds a tool's function to the service that the caller of a request may read."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, cast

from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.tools import Tool
from mcp.types import CallToolResult, ToolAnnotations
from pydantic import BaseModel, ConfigDict

from trmon.assistants.answer import as_result
from trmon.assistants.tools.registry import ToolFunction
from trmon.domain.errors import TrmonError
from trmon_client.api import Service, ServiceError

AnyContext = Context[Any, Any]
ServiceOf = Callable[[AnyContext], AbstractContextManager[Service]]
"""Returns the service of a request's caller. Errors: TrmonError."""
READ_ONLY = ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False)


def bound_tool(name: str, function: ToolFunction, service_of: ServiceOf) -> Tool:
    """Return the tool that answers with a function; it refuses arguments that the function does not have."""
    tool = Tool.from_function(_answering(function, service_of), name=name, annotations=READ_ONLY)
    # The SDK ignores unknown arguments; a misspelt `from_step` would then read the whole run.
    loose = tool.fn_metadata.arg_model
    forbidding = {"model_config": ConfigDict(extra="forbid"), "__module__": __name__}
    strict = cast("type[BaseModel]", type(loose.__name__, (loose,), forbidding))
    metadata = tool.fn_metadata.model_copy(update={"arg_model": strict})
    return tool.model_copy(update={"fn_metadata": metadata, "parameters": strict.model_json_schema()})


def _answering(function: ToolFunction, service_of: ServiceOf) -> Callable[..., CallToolResult]:
    """Return a function with the signature of another, and with the request in place of its service."""

    def call(context: AnyContext, **given: Any) -> CallToolResult:
        with errors_for_the_model(), service_of(context) as service:
            return as_result(function(service, **given))

    asked = inspect.signature(function, eval_str=True)
    request = inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=AnyContext)
    parameters = [request, *list(asked.parameters.values())[1:]]
    call.__name__, call.__doc__ = function.__name__, " ".join((function.__doc__ or "").split())
    # No schema of the answer: those of all tools would be three times the size of their descriptions.
    call.__signature__ = asked.replace(  # type: ignore[attr-defined]
        parameters=parameters, return_annotation=CallToolResult
    )
    return call


@contextmanager
def errors_for_the_model() -> Iterator[None]:
    """Turn what the caller or the service has wrong into an error that the model reads; its text says what to do."""
    try:
        yield
    except (ServiceError, TrmonError) as error:
        raise ToolError(str(error)) from error
