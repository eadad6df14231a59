"""The script of docs/settings.md that turns a mailbox into jsonl."""

from __future__ import annotations

import email.policy
import mailbox
import re
import subprocess
import sys
from email.message import EmailMessage
from pathlib import Path

from read_inputs import read_all

SETTINGS = Path(__file__).parents[3] / "docs" / "settings.md"


def mail(subject, body, **how):
    made = EmailMessage(email.policy.SMTP)
    if subject:
        made["Subject"] = subject
    made.set_content(body, **how)
    return made


def test_the_script_for_mailboxes_decodes_them(tmp_path):
    (script,) = re.findall(r"```python\n(import email.*?)```", SETTINGS.read_text(), re.DOTALL)
    with_file = mail("Größe", "Es paßt.\n\n> Two dogs\n> run.\n", cte="quoted-printable")
    with_file.add_attachment(b"x", maintype="image", subtype="png")
    box = mailbox.mbox(tmp_path / "a.mbox")
    box.add(with_file)
    box.add(mail(None, "A man sings.\n", cte="base64"))
    box.add(mail("Page", "<p>One cup</p>\n", subtype="html"))
    box.close()
    lines = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "a.mbox")], check=True, capture_output=True
    ).stdout
    (tmp_path / "a.jsonl").write_bytes(lines)
    found = read_all(tmp_path / "a.jsonl", text_column="subject,text", keep_paragraphs=True)
    assert found.texts == [
        "Größe.\nEs paßt.\nTwo dogs run.",
        "A man sings.",
        "Page.\n<p>One cup</p>",
    ]
    assert found.dropped == {}
