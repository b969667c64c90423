"""Bulk preparation and translation on Apache Beam."""
