"""Pages of the kinds that users write, field by field, from their CustomResourceDefinitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from docs.markdown import table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def page(definition: Mapping[str, Any]) -> str:
    """The page of one kind: the fields of every version with type, default and description."""
    spec = definition["spec"]
    lines = [f"# {spec['names']['kind']}", ""]
    several = len(spec["versions"]) > 1
    for version in spec["versions"]:
        schema = version["schema"]["openAPIV3Schema"]
        if several:
            lines += [f"## {version['name']}", ""]
        lines += [f"`{spec['group']}/{version['name']}`. {schema.get('description', '')}", ""]
        columns = ", ".join(c["name"] for c in version.get("additionalPrinterColumns", []))
        if columns:
            lines += [f"`kubectl get {spec['names']['plural']}` prints: {columns}.", ""]
        for part in ("spec", "status"):
            fields = list(_fields(schema["properties"].get(part, {}), ""))
            if fields:
                head = f"### {version['name']} {part}" if several else f"## {part}"
                lines += [head, "", *table(("field", "type", "default", "meaning"), fields), ""]
    return "\n".join(lines)


def _fields(schema: Mapping[str, Any], parent: str) -> Iterator[tuple[str, str, str, str]]:
    required = set(schema.get("required", ()))
    for name, field in sorted(schema.get("properties", {}).items()):
        path = f"{parent}.{name}" if parent else name
        inner = field.get("items", field) if field.get("type") == "array" else field
        type_ = f"list of {inner.get('type', 'any')}" if field.get("type") == "array" else _type(field)
        yield f"`{path}`", type_, _default(field, is_required=name in required), _meaning(field)
        yield from _fields(inner, path)


def _type(field: Mapping[str, Any]) -> str:
    if field.get("x-kubernetes-int-or-string") or "anyOf" in field:
        return "integer or string"
    if field.get("type") == "object" and "additionalProperties" in field:
        return "map"
    return str(field.get("type", "any"))


def _default(field: Mapping[str, Any], *, is_required: bool) -> str:
    default = field.get("default", "")
    if is_required:
        return "required"
    return "" if isinstance(default, dict | list) or default == "" else f"`{default}`"


def _meaning(field: Mapping[str, Any]) -> str:
    sentences = [field.get("description", "")]
    if "enum" in field:
        sentences.append("One of " + ", ".join(f"`{v}`" for v in field["enum"]) + ".")
    bounds = {"minimum": "At least", "maximum": "At most", "minItems": "At least", "maxItems": "At most"}
    sentences += [f"{word} {field[key]}." for key, word in bounds.items() if key in field]
    rules = field.get("x-kubernetes-validations", ())
    sentences += [f"{rule['message'][0].upper()}{rule['message'][1:]}." for rule in rules]
    return " ".join(sentence for sentence in sentences if sentence)
