"""The functions' code as it is uploaded: sources, pinned packages, bytecode."""
