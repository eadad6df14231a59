"""Texts and errors made safe to show or store: redacted and printable; detection of full disks."""
