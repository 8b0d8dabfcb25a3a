"""The host side of the bring-up tools: turns the records of their observers into tables, pages and archives."""
