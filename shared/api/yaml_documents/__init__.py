"""YAML as kubectl and the API server read it, and YAML that they read back as the same values.

Both convert YAML to JSON with sigs.k8s.io/yaml, whose rules are neither YAML 1.1's nor 1.2's: ``y`` and ``on`` are
booleans, ``=`` and ``10:30`` are texts, ``1e3`` is 1000. PyYAML parses; the rules here are those of sigs.k8s.io/yaml.
"""
