"""A hook of mkdocs for links from pages to files of the repository, which the site does not contain.

Such a link is replaced by its text. A link to a file that does not exist stays, so that mkdocs warns about it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^()\s#]+)(?:#[^()\s]*)?\)")


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: Any) -> str:
    """Replace each link of a page that leads out of the documentation's folder by the link's text."""
    docs = Path(config["docs_dir"]).resolve()
    folder = (docs / page.file.src_uri).parent

    def text(link: re.Match[str]) -> str:
        target = (folder / link[2]).resolve()
        leads_out = target.exists() and not target.is_relative_to(docs)
        return link[1] if leads_out else link[0]

    return LINK.sub(text, markdown)
