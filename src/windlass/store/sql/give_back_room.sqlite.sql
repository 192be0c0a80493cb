-- Pages that pruning has freed go back to the file system, some at a time.
pragma incremental_vacuum(2000);
