"""``/docs``: the description of the API as a page that needs nothing from anywhere else."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

Schema = Mapping[str, Any]
_REFERENCE = "#/components/schemas/"
_AUTHORIZATION = {
    "apiKey": "Bearer $KEY, an API key of the workspace, or the token of a session",
    "operator": "Basic, the login and the password of an operator",
    "endpointSecret": "Bearer $SECRET, the secret of the endpoint",
}


def docs_page(api: Schema) -> str:
    """``api`` is what ``openapi.json`` says."""
    schemas = api["components"]["schemas"]
    sections: dict[str, list[str]] = {}
    for path, operations in api["paths"].items():
        for verb, operation in operations.items():
            sections.setdefault(operation["tags"][0], []).append(_operation(verb, path, operation, schemas))
    body = [f"<h2>{escape(name)}</h2>{''.join(shown)}" for name, shown in sections.items()]
    body += ["<h2>schemas</h2>", *(_schema(name, schemas[name]) for name in sorted(schemas))]
    words = {key: escape(api["info"][key]) for key in ("title", "version", "description")}
    return Template(files("vestnik.api").joinpath("docs.html").read_text()).substitute(words, body="".join(body))


def _operation(verb: str, path: str, operation: Schema, schemas: Schema) -> str:
    parts = [f"<p>{escape(operation['description'])}</p>"] if "description" in operation else []
    for scheme in (name for each in operation.get("security", ()) for name in each):
        parts.append(f"<p class='soft'>Authorization: {_AUTHORIZATION[scheme]}</p>")
    if parameters := operation.get("parameters"):
        rows = (_row(each["name"], each["schema"], each.get("description"), each["required"]) for each in parameters)
        parts.append(f"<h3>Parameters</h3>{_table(rows)}")
    for kind, content in operation.get("requestBody", {}).get("content", {}).items():
        parts.append(f"<h3>Body, {escape(kind)}</h3>{_body(kind, content['schema'], schemas)}")
    answers = (
        (f"<code>{status}</code>", escape(answer["description"]), _answered(answer))
        for status, answer in operation["responses"].items()
    )
    parts.append(f"<h3>Answers</h3>{_table(answers, 'answers')}")
    head = f"<span class='verb {verb}'>{verb.upper()}</span><code>{escape(path)}</code>"
    summary = f"<span class='soft'>{escape(operation['summary'])}</span>"
    return f"<details><summary>{head} {summary}</summary><div class='inside'>{''.join(parts)}</div></details>"


def _body(kind: str, schema: Schema, schemas: Schema) -> str:
    if kind != "application/json":
        return _properties(schema)
    example = json.dumps(_example(schema, schemas), ensure_ascii=False, indent=2)
    return f"<p>{_type(schema)}, for example</p><pre>{escape(example)}</pre>"


def _answered(answer: Schema) -> str:
    return ", ".join(_type(content.get("schema", {})) for content in answer.get("content", {}).values())


def _schema(name: str, schema: Schema) -> str:
    about = f"<p class='soft'>{escape(schema['description'])}</p>" if "description" in schema else ""
    return f"<section id='{escape(name)}'><code>{escape(name)}</code>{about}{_properties(schema)}</section>"


def _properties(schema: Schema) -> str:
    required = schema.get("required", ())
    return _table(
        _row(name, each, each.get("description"), name in required)
        for name, each in schema.get("properties", {}).items()
    )


def _row(name: str, schema: Schema, description: str | None, required: bool) -> tuple[str, str, str]:
    star = " <span class='soft' title='required'>*</span>" if required else ""
    default = schema.get("default")
    said = [description] if description else []
    said += [f"Otherwise {json.dumps(default, ensure_ascii=False)}."] if default is not None else []
    return f"<code>{escape(name)}</code>{star}", f"<span class='type'>{_type(schema)}</span>", escape(" ".join(said))


def _table(rows: Iterable[tuple[str, ...]], kind: str = "") -> str:
    lines = (f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table class='{kind}'>{''.join(lines)}</table>"


def _type(schema: Schema) -> str:
    """In a few words, with links to what has a name."""
    if "$ref" in schema:
        name = escape(schema["$ref"].removeprefix(_REFERENCE))
        return f"<a href='#{name}'>{name}</a>"
    if several := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(dict.fromkeys(_type(each) for each in several))
    if "enum" in schema:
        return " | ".join(escape(json.dumps(each)) for each in schema["enum"])
    if "const" in schema:
        return escape(json.dumps(schema["const"]))
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if schema.get("type") == "object" and schema.get("title"):
        return escape(schema["title"]) if "properties" in schema else "object"
    return escape(str(schema.get("format") or schema.get("type") or "anything"))


def _example(schema: Schema, schemas: Schema) -> Any:
    """The shortest that says something: what must be there, else what comes first."""
    if "$ref" in schema:
        return _example(schemas[schema["$ref"].removeprefix(_REFERENCE)], schemas)
    if "examples" in schema:
        return schema["examples"][0]
    if "const" in schema or "enum" in schema:
        return schema.get("const", schema.get("enum", [None])[0])
    if several := schema.get("anyOf") or schema.get("oneOf"):
        return _example(several[0], schemas)
    if schema.get("default") is not None:
        return schema["default"]
    if schema.get("type") == "object":
        properties = schema.get("properties", {})
        names = schema.get("required") or list(properties)[:1]
        return {name: _example(properties[name], schemas) for name in names}
    if schema.get("type") == "array":
        return [_example(schema.get("items", {}), schemas)]
    of_format = {"date-time": "2027-01-31T09:00:00+03:00", "uuid": "01a1f5a4-a9b6-742d-beb5-ddf5f45ffeae"}
    return of_format.get(
        schema.get("format", ""), {"integer": 1, "number": 1, "boolean": True}.get(str(schema.get("type")), "Hello")
    )
