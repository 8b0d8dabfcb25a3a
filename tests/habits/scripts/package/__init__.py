"""A project as a package; its training is started by `python -m package.train`."""
