"""Compare methods on the same folds of one data set: accuracy, cost, and whether pre-training helps."""
