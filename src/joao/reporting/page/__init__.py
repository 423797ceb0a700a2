"""The page of ``joao report``: what runs learned, how good it is and how it came about, in one file of HTML.

:mod:`subject` collects what is at hand of a run, :mod:`scores`, :mod:`history`, :mod:`graph_set`, :mod:`embedding_map`
and :mod:`changes` make numbers and texts of it, and :mod:`rendering` puts these into the templates beside it. The page
asks the network for nothing, and no text of a user's data becomes part of its code.
"""
