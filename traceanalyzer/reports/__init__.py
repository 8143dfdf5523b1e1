"""From what an analysis found to a `Report`: which columns, in which order, with which words around them."""
