"""The scikit-learn estimators, and :func:`joao.load`."""
