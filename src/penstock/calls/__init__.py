"""Calls in progress, native or in a text: growing arguments, their diagnosis, block numbers and unique ids."""
