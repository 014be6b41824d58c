"""Sentences that stand below a docstring's parameters go above them for the site, where they are text."""

import re

import griffe


class SentencesFirst(griffe.Extension):
    """Moves paragraphs of text out of the list of parameters, such as what is said of exactness."""

    def on_object(self, *, obj, **kwargs):
        if obj.is_alias or obj.docstring is None:
            return
        head, mark, body = obj.docstring.value.partition("\n\nParameters\n")
        if not mark:
            return
        listed, *rest = re.split(r"(?=\n\n[A-Z]\w+\n-{3,}\n)", body, maxsplit=1)
        paragraphs = listed.split("\n\n")
        said = [text for text in paragraphs[1:] if _is_text(text)]
        kept = [text for text in paragraphs if text not in said]
        obj.docstring.value = "\n\n".join([head, *said]) + mark + "\n\n".join(kept) + "".join(rest)


def _is_text(paragraph):
    """Whether it is a sentence and not a parameter with what is said of it, indented."""
    first, _, more = paragraph.partition("\n")
    return " " in first.strip(",") and first[:1].isupper() and not more.startswith(" ")
