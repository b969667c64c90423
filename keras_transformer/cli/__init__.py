"""The programs at a terminal: flags, console, requests for translations, files of lines."""
