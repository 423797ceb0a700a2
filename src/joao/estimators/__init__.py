"""The scikit-learn estimators: :class:`joao.JOAO`, :class:`joao.JOAOClassifier`, :class:`joao.JOAORegressor`."""
