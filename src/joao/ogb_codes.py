"""Nodes and edges as numbers, as OGB's files have them (Hu et al., NeurIPS 2020).

============== ======= ===============================================================================================
molecules      atoms   element, chirality, degree, charge, hydrogens, radical electrons, hybridisation, aromatic, ring
               bonds   type, stereo, conjugated
syntax trees   nodes   type, attribute, depth below the root, and place among the nodes in the order of a depth-first
                       walk: -1 for a node without an attribute
               edges   0 from parent to child, 1 from child to parent
============== ======= ===============================================================================================

Where all numbers of a node are -1, it is hidden: the mask token. A number beyond its table counts as the table's last,
which OGB calls "misc" or, of attributes, is that of all rare ones.
"""

ATOMS = (119, 5, 12, 12, 10, 6, 6, 2, 2)
BONDS = (5, 6, 2)
TYPES = 98
ATTRIBUTES = 10_030
MOST_DEPTH = 20
SYNTAX_COLUMNS = 4
