"""Bulk preparation and translation on Apache Beam."""

INSTALL = "pip install 'apache-beam>=2.69' 'sentencepiece<0.2.3'"  # the extra [beam] of pyproject.toml
