"""Any methods on the same folds of one data set, what they cost, and whether pre-training helps."""
