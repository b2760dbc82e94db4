"""The OP-DAG as data: operators, values, cuts, stages and boundary tensors. No torch, no input or output."""
