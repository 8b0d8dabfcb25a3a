"""The results that people read and pass on: the answer of an investigation in words, on a page, in Markdown."""
