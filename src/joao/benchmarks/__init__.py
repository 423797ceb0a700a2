"""How fast training is beside the least it could cost, beside what else one would use, and how it grows."""
