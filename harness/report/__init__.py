"""The results that people look at and send on: the answer of an investigation in words, on a page, in Markdown."""
