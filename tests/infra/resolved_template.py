"""A template's values with resolved references, for an account in us-east-1."""

from typing import Any

PSEUDO = {
    "AWS::AccountId": "123456789012",
    "AWS::Partition": "aws",
    "AWS::Region": "us-east-1",
    "AWS::URLSuffix": "amazonaws.com",
}


def resolved(value: Any) -> Any:  # noqa: ANN401 - any part of a template
    """The value; a resource stands for itself by its logical id, its attributes by ``id.attribute``."""
    match value:
        case {"Ref": name}:
            return PSEUDO.get(name, name)
        case {"Fn::GetAtt": parts}:
            return ".".join(parts)
        case {"Fn::Join": [separator, parts]}:
            return separator.join(str(resolved(part)) for part in parts)
        case {"Fn::Sub": text}:
            for name, said in PSEUDO.items():
                text = text.replace(f"${{{name}}}", said)
        case dict():
            text = {key: resolved(one) for key, one in value.items()}
        case list():
            text = [resolved(one) for one in value]
        case _:
            text = value
    return text
