"""What may be shown or stored of a text or an error: redacted, printable, and explained."""
