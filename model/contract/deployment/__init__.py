"""Which versions of a bundle folder answer: the document, its changes, its journal, and their live scores."""
