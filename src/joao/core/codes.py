r"""Integer codes of nodes and edges.

Molecules, as in the pre-training literature (Hu et al., ICLR 2020):

======= ============ ===========================================================================================
atoms   element      atomic number - 1, 0 to 117; 118 for ``*`` and anything else that is not an element
        chirality    0 unspecified, 1 tetrahedral clockwise, 2 tetrahedral counter-clockwise, 3 any other
bonds   type         0 single, 1 double, 2 triple, 3 aromatic; 0 for other types, such as dative
        direction    0 none, 1 ``/`` (end upright), 2 ``\`` (end downright); 0 for others
======= ============ ===========================================================================================

OGB data sets (Hu et al., NeurIPS 2020):

============== ======= ===============================================================================================
molecules      atoms   element, chirality, degree, charge, hydrogens, radical electrons, hybridisation, aromatic, ring
               bonds   type, stereo, conjugated
syntax trees   nodes   type, attribute, depth below the root, and position in a depth-first walk (-1 for a node without
                       an attribute)
               edges   0 from parent to child, 1 from child to parent
============== ======= ===============================================================================================

A node with codes -1 is masked. Codes beyond a table count as its last entry, which OGB calls "misc", or, for
attributes, stands for all rare ones.
"""

NUM_ELEMENTS = 119
NUM_CHIRALITIES = 4
NUM_BOND_TYPES = 4
NUM_BOND_DIRECTIONS = 3

# Element symbols in the order of their codes; the last one is for anything else.
_ELEMENT_SYMBOLS = """
H He Li Be B C N O F Ne Na Mg Al Si P S Cl Ar K Ca Sc Ti V Cr Mn Fe Co Ni Cu Zn Ga Ge As Se Br Kr
Rb Sr Y Zr Nb Mo Tc Ru Rh Pd Ag Cd In Sn Sb Te I Xe Cs Ba La Ce Pr Nd Pm Sm Eu Gd Tb Dy Ho Er Tm Yb Lu
Hf Ta W Re Os Ir Pt Au Hg Tl Pb Bi Po At Rn Fr Ra Ac Th Pa U Np Pu Am Cm Bk Cf Es Fm Md No Lr
Rf Db Sg Bh Hs Mt Ds Rg Cn Nh Fl Mc Lv Ts Og *
"""
ELEMENT_SYMBOLS = tuple(_ELEMENT_SYMBOLS.split())

# Sizes of OGB's embedding tables, one per column.
OGB_ATOM_SIZES = (119, 5, 12, 12, 10, 6, 6, 2, 2)
OGB_BOND_SIZES = (5, 6, 2)
OGB_NODE_TYPES = 98
OGB_NODE_ATTRIBUTES = 10_030
OGB_MAX_DEPTH = 20
OGB_TREE_COLUMNS = 4
