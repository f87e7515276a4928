"""A cluster of many pods behind HTTP, for the informers that bench/informer.py compares."""
