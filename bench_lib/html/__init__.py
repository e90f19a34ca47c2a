"""Sections of a page as one self-contained HTML file, and the reports that ship with the project."""
