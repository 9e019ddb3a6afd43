"""A template's values with resolved references, for an account in us-east-1."""

from typing import Any

PSEUDO = {
    "AWS::AccountId": "123456789012",
    "AWS::Partition": "aws",
    "AWS::Region": "us-east-1",
    "AWS::URLSuffix": "amazonaws.com",
}


def resolved(value: Any) -> Any:
    """The value; a resource stands for itself by its logical id, its attributes by ``id.attribute``."""
    match value:
        case {"Ref": name}:
            return PSEUDO.get(name, name)
        case {"Fn::GetAtt": parts}:
            return ".".join(parts)
        case {"Fn::Join": [separator, parts]}:
            return separator.join(str(resolved(part)) for part in parts)
        case {"Fn::Sub": text}:
            for name, replacement in PSEUDO.items():
                text = text.replace(f"${{{name}}}", replacement)
        case dict():
            text = {key: resolved(element) for key, element in value.items()}
        case list():
            text = [resolved(element) for element in value]
        case _:
            text = value
    return text
