"""One reproducer in several modes: the folders made, the processes run, the results written down."""
